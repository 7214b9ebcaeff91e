"""One-step mutants of the solutions: one operator, number, name or call replaced by another one."""

import ast
import copy

OPERATORS = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.MatMult: (),
    ast.FloorDiv: (ast.Div,),
    ast.Mod: (ast.FloorDiv,),
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
}
CALLS = {  # names of functions and methods
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
    """The nodes that may stand where this one does."""
    if isinstance(node, ast.BinOp):
        for other in OPERATORS[type(node.op)]:
            yield ast.BinOp(node.left, other(), node.right)
        if not isinstance(node.op, ast.Add | ast.Mult):
            yield ast.BinOp(node.right, node.op, node.left)
        yield node.left
        yield node.right
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        for other in OPERATORS[type(node.ops[0])]:
            yield ast.Compare(node.left, [other()], node.comparators)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield node.operand
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        for other in {node.value + 1, node.value - 1, -node.value, 2 * node.value} - {node.value}:
            yield ast.Constant(other)
    if isinstance(node, ast.Constant) and node.value is True:
        yield ast.Constant(False)
    if isinstance(node, ast.Attribute) and node.attr == "T":
        yield node.value
    if isinstance(node, ast.Attribute) and node.attr in CALLS:
        for other in CALLS[node.attr]:
            yield ast.Attribute(node.value, other, node.ctx)
    if isinstance(node, ast.Call) and len(node.args) == 2 and not node.keywords:
        yield ast.Call(node.func, node.args[::-1], [])


def names_exchanged(tree):
    """Each name that is read, replaced by another argument of its function."""
    for function in [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]:
        names = [argument.arg for argument in function.args.args]
        for node in ast.walk(function):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in names:
                for other in names:
                    if other != node.id:
                        yield node, ast.Name(other, ast.Load())


def steps(text):
    """(tree, old node, new node) of every mutant of a solution."""
    tree = ast.parse(text)
    pairs = [(node, new) for node in ast.walk(tree) for new in replacements(node)] + [*names_exchanged(tree)]
    return [(tree, old, new) for old, new in pairs]


def mutant(step):
    """What was replaced by what, and the text of the mutant."""
    tree, old, new = step
    replacer = Replacer(old, new)
    changed = ast.fix_missing_locations(replacer.visit(copy_of(tree, old, replacer)))
    return f"{ast.unparse(old)} -> {ast.unparse(ast.fix_missing_locations(new))}", ast.unparse(changed)


def copy_of(tree, old, replacer):
    """A copy of a tree, in which the replacer looks for the copy of the old node."""
    memo = {}
    made = copy.deepcopy(tree, memo)
    replacer.old = memo[id(old)]
    return made


class Replacer(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old, new):
        self.old, self.new = old, new

    def visit(self, node):
        return copy.deepcopy(self.new) if node is self.old else self.generic_visit(node)
