"""The stubs in `typings/mitmproxy`, compared with the library: each name exists, with the same parameters."""

import ast
import inspect
from importlib import import_module
from pathlib import Path
from textwrap import dedent

import pytest

pytest.importorskip("mitmproxy")

TYPINGS = Path(__file__).parents[3] / "typings"


def differences(folder):
    """Yield a line for each name of the stubs in `folder` that the library has differently."""
    for stub in sorted(folder.rglob("*.pyi")):
        name = ".".join(stub.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        module = import_module(name)
        for node in ast.parse(stub.read_text("utf-8")).body:
            match node:
                case ast.AnnAssign(target=ast.Name(id=member)):
                    if not hasattr(module, member) and member not in module.__annotations__:
                        yield f"{name}.{member}: not in the library"
                case ast.ClassDef():
                    yield from of_class(f"{name}.{node.name}", getattr(module, node.name, None), node)


def of_class(name, cls, stub):
    if not inspect.isclass(cls):
        yield f"{name}: not a class of the library"
        return
    for base in stub.bases:
        wanted = ast.unparse(base.value if isinstance(base, ast.Subscript) else base).rpartition(".")[2]
        if wanted not in {one.__name__ for one in cls.__mro__}:
            yield f"{name}: {wanted} is not among its bases"
    for node in stub.body:
        if not isinstance(node, ast.Expr) and (problem := of_member(cls, node)):
            yield f"{name}.{problem}"


def of_member(cls, node):
    if isinstance(node, ast.AnnAssign):
        return "" if node.target.id in attributes(cls) else f"{node.target.id}: no attribute of the library"
    found = inspect.getattr_static(cls, node.name, None)
    match node.decorator_list:
        case [] | [ast.Name(id="classmethod")]:
            return of_method(found.__func__ if isinstance(found, classmethod) else found, node)
        case [ast.Name(id="property")] if not isinstance(found, property):
            return f"{node.name}: no property of the library"
        case [ast.Attribute(attr="setter")] if getattr(found, "fset", None) is None:
            return f"{node.name}: cannot be set in the library"
    return ""


def of_method(found, node):
    if not callable(found):
        return f"{node.name}: no method of the library"
    if inspect.iscoroutinefunction(found) != isinstance(node, ast.AsyncFunctionDef):
        return f"{node.name}: only one of the two is a coroutine"
    if (real := parameters(found)) != (stubbed := stubbed_parameters(node.args)):
        return f"{node.name}: has {real}, not {stubbed}"
    return ""


def attributes(cls):
    """The names that a class declares, or assigns to itself in a method."""
    found = set()
    for one in (one for one in cls.__mro__ if one.__module__.startswith("mitmproxy")):
        found |= set(vars(one)) | set(inspect.get_annotations(one))
        tree = ast.parse(dedent(inspect.getsource(one)))
        found |= {
            node.attr
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
        }
    return found


def parameters(function):
    return [
        (one.name, one.kind, one.default is not one.empty) for one in inspect.signature(function).parameters.values()
    ]


def stubbed_parameters(args):
    """The parameters as `parameters` lists them: the default values are not compared."""
    bare = ast.parse(f"lambda {ast.unparse(without_annotations(args))}: 0", mode="eval")
    return parameters(eval(compile(bare, "stub", "eval")))  # a lambda of this repository's own stub


def without_annotations(args):
    for one in (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg):
        if one is not None:
            one.annotation = None
    return args


def test_the_stubs_agree_with_the_library():
    assert list(TYPINGS.rglob("*.pyi"))
    assert list(differences(TYPINGS)) == []


@pytest.mark.parametrize(
    ("stub", "difference"),
    [
        ("gone: int", "mitmproxy.flow.gone: not in the library"),
        ("class Gone: ...", "mitmproxy.flow.Gone: not a class of the library"),
        ("class Flow(Error): ...", "mitmproxy.flow.Flow: Error is not among its bases"),
        ("class Flow:\n gone: int", "mitmproxy.flow.Flow.gone: no attribute of the library"),
        ("class Flow:\n def gone(self): ...", "mitmproxy.flow.Flow.gone: no method of the library"),
        ("class Flow:\n def kill(self, why): ...", "mitmproxy.flow.Flow.kill: has"),
        ("class Flow:\n async def kill(self): ...", "mitmproxy.flow.Flow.kill: only one of the two is a coroutine"),
        ("class Flow:\n @property\n def kill(self): ...", "mitmproxy.flow.Flow.kill: no property of the library"),
        (
            "class Flow:\n @killable.setter\n def killable(self, x): ...",
            "mitmproxy.flow.Flow.killable: cannot be set in the library",
        ),
    ],
)
def test_a_stub_of_something_else_is_found(tmp_path, stub, difference):
    (tmp_path / "mitmproxy").mkdir()
    (tmp_path / "mitmproxy" / "flow.pyi").write_text(stub)
    (found,) = differences(tmp_path)
    assert found.startswith(difference)
