"""Create a new operation: module, public names, signatures in contract.txt, reference page, tests."""

import re
import textwrap

from scaffolds.files import (
    CannotCreate,
    filled,
    print_steps,
    read,
    reject_existing,
    replaced_once,
    sort_imports,
    write_all,
)

PUBLIC = "npformer/__init__.py"
MODERN = "npformer/modern/__init__.py"
RULES = "tests/test_project_rules.py"
CONTRACT = "tests/data/contract.txt"
CALLS = "tests/valid_calls.py"
REFERENCE = ".ci/site/api/index.rst"
LAYOUT = "notebooks/guide/layout.md"
LAST_MODERN_PAGE = "   npformer.modern.byte_pairs\n"
LAST_CORE_PAGE = "   npformer.optim\n"

MODULE = '''"""MISSING: name the operation in one line, forward and backward."""

from typing import NamedTuple

import numpy as np

from npformer.arrays import Array
from npformer.validation.annotations import DType, Float, Size


class <Name>Params(NamedTuple):
    """MISSING: describe the parameters. One factor for each column is an example."""

    scale: Float[Array, "d_model"]


class <Name>Cache(NamedTuple):
    x: Float[Array, "... d_model"]
    params: <Name>Params


def init_<name>(d_model: Size, *, dtype: DType = np.float64) -> <Name>Params:
    """Initial parameters: scale = 1.

    Parameters
    ----------
    d_model : int
    dtype : float64 or float32

    Returns
    -------
    params : <Name>Params

    Examples
    --------
    >>> init_<name>(2)
    <Name>Params(scale=array([1., 1.]))
    """
    return <Name>Params(np.ones(d_model, dtype))


def <name>_forward(
    x: Float[Array, "... d_model"], params: <Name>Params
) -> tuple[Float[Array, "... d_model"], <Name>Cache]:
    """MISSING: the equation, such as y = scale x.

    MISSING: the source, such as Vaswani et al., "Attention Is All You Need", 2017, equation 2.

    Parameters
    ----------
    x : float array (..., d_model)
    params : <Name>Params

    Returns
    -------
    y : float array (..., d_model)
    cache : <Name>Cache
        Input of `<name>_backward`.
    """
    y = params.scale * x  # MISSING: the equation
    return y, <Name>Cache(x, params)


def <name>_backward(
    dy: Float[Array, "... d_model"], cache: <Name>Cache
) -> tuple[Float[Array, "... d_model"], <Name>Params]:
    """MISSING: the equations, such as dx = scale dy; dscale = Σ dy x over all rows.

    Parameters
    ----------
    dy : float array (..., d_model)
        The gradient of the loss with respect to y.
    cache : <Name>Cache
        Returned by `<name>_forward`.

    Returns
    -------
    dx : float array (..., d_model)
    grads : <Name>Params
    """
    dx = 0 * dy  # MISSING: the equation
    dscale = 0 * cache.params.scale  # MISSING: the equation
    return dx, <Name>Params(dscale)
'''

TESTS = '''"""MISSING: name the operation, then: the equation, the gradient, the golden values, the edges."""

import pytest
from gradients import make_gradient_test

# --- the equation, by hand --------------------------------------------------------------------------


def test_forward_by_hand():
    pytest.fail("calculate one small case with a pencil, and compare <name>_forward with it")


# --- the gradient, the golden values ----------------------------------------------------------------

test_gradients = make_gradient_test("<name>", {}, {"lead": ()})


def test_golden_values():
    pytest.fail(
        "add a case of <name> to tests/data/make_golden.py, run that script "
        "(uv run --with torch==2.13 python tests/data/make_golden.py), "
        "and replace this test by one with agrees_with_pytorch"
    )


# --- the edges --------------------------------------------------------------------------------------


def test_edges():
    pytest.fail("test the edges, such as zeros, NaN or a single column; tests/edges.py helps")
'''

VALID_CALL = '    "<name>_forward": lambda: {"params": npf.<Name>Params(array(8, seed=1))},\n'

PROMISE = """
# <name>
<Name>Params(scale)
init_<name>(d_model, *, dtype=float64)
<name>_backward(dy, cache)
<name>_forward(x, params)
"""


def public_names(name):
    """Return the public names of an operation's module."""
    return [f"{class_name(name)}Params", f"init_{name}", f"{name}_backward", f"{name}_forward"]


def class_name(name):
    """Convert a name such as "layer_norm" to "LayerNorm"."""
    return "".join(part.capitalize() for part in name.split("_"))


def with_all(text, names):
    """Add these names to `__all__` in a module's text, and sort `__all__`."""
    listed = re.search(r"__all__ = \[\n(.*?)\n\]", text, re.DOTALL)[1]
    every_name = sorted({*re.findall(r'"(\w+)"', listed), *names})
    line = ", ".join(f'"{name}"' for name in every_name) + ","
    lines = textwrap.fill(line, 110, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False)
    return text.replace(listed, lines)


def with_import(text, module, names):
    """Add an import to a module's text after the last import. Later, ruff sorts the imports."""
    line = f"from {module} import {', '.join(names)}\n"
    imports = list(re.finditer(r"^from npformer[\w.]* import (?:\([^)]*\)|.*)\n", text, re.MULTILINE))
    end = imports[-1].end()
    return text[:end] + line + text[end:]


def with_valid_call(text, values):
    """Return the text of valid_calls.py with an entry for the operation in VALUES_OF_FUNCTION."""
    entry = re.search(r'^    "table_1": .*\n', text, re.MULTILINE)
    if not entry:
        raise CannotCreate(f"{CALLS} has no entry of table_1, where a valid call has to be added")
    return text[: entry.end()] + filled(VALID_CALL, **values) + text[entry.end() :]


def texts_for_modern(name, names):
    """Return {path: new text} for an operation in npformer/modern."""
    module = f"npformer.modern.{name}"
    page = f"   {module}\n"
    return {
        MODERN: with_all(with_import(read(MODERN), module, names), names),
        PUBLIC: with_all(with_import(read(PUBLIC), "npformer.modern", names), names),
        REFERENCE: replaced_once(read(REFERENCE), LAST_MODERN_PAGE, LAST_MODERN_PAGE + page, REFERENCE),
    }


def texts_for_core(name, names):
    """Return {path: new text} for an operation directly in npformer/."""
    module = f"npformer.{name}"
    page = f"   {module}\n"
    row = f"  {name + '.py':<18} {filled('MISSING: what it computes')}\n"
    config_row, floors_row = "  config.py ", '    "encoder": 7,'
    return {
        PUBLIC: with_all(with_import(read(PUBLIC), module, names), names),
        REFERENCE: replaced_once(read(REFERENCE), LAST_CORE_PAGE, LAST_CORE_PAGE + page, REFERENCE),
        LAYOUT: replaced_once(read(LAYOUT), config_row, row + config_row, LAYOUT),
        RULES: replaced_once(read(RULES), floors_row, f'    "{name}": 6,\n{floors_row}', RULES),
    }


def create_operation(name, is_core):
    """Create the files of an operation, and add its names wherever names are listed."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise CannotCreate(f"{name!r} is no name for a module; expected one such as rms_norm")
    folder = "" if is_core else "modern/"
    module, tests = f"npformer/{folder}{name}.py", f"tests/{folder}test_{name}.py"
    reject_existing(module, tests)
    names = public_names(name)
    for taken in names:
        if f'"{taken}"' in read(PUBLIC):
            raise CannotCreate(f"npformer.{taken} exists already; choose another name")
    values = {"name": name, "Name": class_name(name), "module": module}
    texts = texts_for_core(name, names) if is_core else texts_for_modern(name, names)
    texts[module] = filled(MODULE, **values)
    texts[tests] = filled(TESTS, **values)
    texts[CALLS] = with_valid_call(read(CALLS), values)
    texts[CONTRACT] = read(CONTRACT) + filled(PROMISE, **values)
    write_all(texts)
    sort_imports(PUBLIC, MODERN, tests)
    print_steps([
        f"Write the equations in {module}. "
        f"If its arguments or parameters change, change {CONTRACT} and {CALLS} too.",
        f"Run `uv run pytest {tests} {RULES}`: the failing tests and the marks say what is missing.",
        "Add one or two wrong backward passes to tests/data/planted.txt. "
        "Run `uv run python tests/data/make_kill_table.py`, "
        "then `uv run pytest tests/test_gradcheck.py tests/test_readme.py`: every mistake must be caught.",
        "Add a line under `## Unreleased` in notebooks/guide/changelog.md.",
    ])  # fmt: skip
