"""Make mutants of the solutions: functions in which one operator, number, name or call is replaced."""

import ast
import copy
from typing import Any

OPERATORS: dict[type, tuple[Any, ...]] = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.BitAnd: (ast.BitOr,),
    ast.BitOr: (ast.BitAnd,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
CALLS = {  # names of functions and methods, and the names that replace them
    "sum": ("mean", "max"),
    "mean": ("sum",),
    "max": ("min",),
    "min": ("max",),
    "sin": ("cos",),
    "cos": ("sin",),
    "exp": ("expm1",),
    "log": ("log1p",),
    "sqrt": ("square",),
    "maximum": ("minimum",),
    "rint": ("floor", "ceil"),
    "repeat": ("tile",),
    "cumsum": ("cumprod",),
    "zeros": ("ones",),
    "var": ("std",),
    "argsort": ("argmax",),
}


def replacements(node):
    """Yield the nodes that may replace this node of the syntax tree. Each new node gives one mutant."""
    if isinstance(node, ast.BinOp):
        yield from replace_operation(node)
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for operator in OPERATORS[type(node.ops[0])]:
            yield ast.Compare(node.left, [operator()], node.comparators)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        number: Any = node.value
        for value in {number + 1, number - 1, -number, 2 * number} - {number}:
            yield ast.Constant(value)
    if isinstance(node, ast.Constant) and node.value is True:
        yield ast.Constant(False)
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield node.value
    if isinstance(node, ast.Attribute) and node.attr in CALLS:
        for name in CALLS[node.attr]:
            yield ast.Attribute(node.value, name, node.ctx)
    if isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords:
        yield ast.Call(node.func, node.args[::-1], [])


def replace_operation(node):
    """Yield nodes with a different operator, a node with exchanged operands, and each operand alone."""
    for operator in OPERATORS[type(node.op)]:
        yield ast.BinOp(node.left, operator(), node.right)
    is_commutative = isinstance(node.op, ast.Add | ast.Mult)
    if not is_commutative:
        yield ast.BinOp(node.right, node.op, node.left)
    yield node.left
    yield node.right


def replace_names(tree):
    """Yield (node, new node) pairs that replace a use of an argument by a different argument."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        arguments = [argument.arg for argument in function.args.args]
        for node in ast.walk(function):
            if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Load):
                continue
            if node.id not in arguments:
                continue
            for name in arguments:
                if name != node.id:
                    yield node, ast.Name(name, ast.Load())


def steps(text):
    """List (syntax tree, old node, new node) for every mutant of a solution."""
    tree = ast.parse(text)
    pairs = [(node, new) for node in ast.walk(tree) for new in replacements(node)]
    pairs += replace_names(tree)
    return [(tree, old, new) for old, new in pairs]


def mutant(step):
    """Return a description of the replacement, and the text of the mutant."""
    tree, old, new = step
    replacer = Replacer(old, new)
    copy_of_tree = copy_tree(tree, old, replacer)
    changed = ast.fix_missing_locations(replacer.visit(copy_of_tree))
    description = f"{ast.unparse(old)} -> {ast.unparse(ast.fix_missing_locations(new))}"
    return description, ast.unparse(changed)


def copy_tree(tree, old, replacer):
    """Return a copy of a syntax tree, and set which node of the copy the replacer has to replace."""
    memo = {}
    copy_of_tree = copy.deepcopy(tree, memo)
    replacer.old = memo[id(old)]
    return copy_of_tree


class Replacer(ast.NodeTransformer):
    """Replace one node of a tree by a new node."""

    def __init__(self, old, new):
        self.old = old
        self.new = new

    def visit(self, node):
        if node is self.old:
            return copy.deepcopy(self.new)
        return self.generic_visit(node)
