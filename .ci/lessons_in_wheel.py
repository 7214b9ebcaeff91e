"""A hatchling build hook that adds the lessons, without their outputs, to the wheel."""

import importlib.util
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Lessons(BuildHookInterface):
    """Add npformer/lessons/*.ipynb without outputs. In a clone, the package reads notebooks/ instead."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the lessons to a temporary folder, and tell hatchling where they belong in the wheel."""
        if version == "editable":
            return
        student_copy = self._student_copy()
        self.folder = Path(tempfile.mkdtemp())
        for path in sorted(Path(self.root, "notebooks").glob("*.ipynb")):
            lesson = student_copy(json.loads(path.read_text(encoding="utf-8")))
            text = json.dumps(lesson, indent=1, ensure_ascii=False) + "\n"
            (self.folder / path.name).write_text(text, encoding="utf-8", newline="\n")
            build_data["force_include"][str(self.folder / path.name)] = f"npformer/lessons/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the temporary folder."""
        if version != "editable":
            shutil.rmtree(self.folder)

    def _student_copy(self) -> Any:
        """Load `make_student_copy` from its file, because the build cannot import npformer without NumPy."""
        path = Path(self.root, "npformer", "handouts", "lesson_copies.py")
        spec = importlib.util.spec_from_file_location("lesson_copies", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.make_student_copy
