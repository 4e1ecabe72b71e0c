import json
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from noetl.cli.svg import ranks, to_svg
from noetl.dsl.graph import Edge, Graph, Node


@pytest.mark.parametrize("option", [("--format", "dot"), ("-o", "dot"), ("--output=dot",)])
def test_the_format_has_three_spellings(noetl, hello, option):
    code, out, err = noetl("graph", hello, *option)

    assert (code, err) == (0, "")
    assert out.startswith('digraph "examples/hello" {')


def test_the_default_is_mermaid(noetl, hello):
    assert noetl("graph", hello).out == 'flowchart TD\n  n0(["start<br/>python"])\n'


def test_json_holds_nodes_and_edges(noetl, hello):
    found = json.loads(noetl("graph", hello, "--json").out)

    assert (found["path"], [node["name"] for node in found["nodes"]]) == (
        "examples/hello",
        ["start"],
    )


def test_a_picture_is_xml_with_a_box_per_step(noetl, hello):
    root = ET.fromstring(noetl("graph", hello, "-o", "svg").out)  # noqa: S314 - our own text

    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert len(root.findall(".//{*}rect")) == 1


def test_an_invalid_file_ends_with_7_and_its_findings_on_stderr(noetl, misspelt):
    code, out, err = noetl("graph", misspelt, "-q")

    assert (code, out) == (7, "")
    assert err.splitlines()[0].startswith("orders.yaml:9:7: error DSL030: ")
    assert err.splitlines()[1] == "error[invalid_playbook]: 1 error in orders.yaml"
    code, out, err = noetl("graph", misspelt, "--json")
    assert (code, out) == (7, "")
    assert json.loads(err)["error"]["details"]["diagnostics"][0]["code"] == "DSL030"


def test_only_a_playbook_has_a_graph(noetl, tmp_path):
    text = "apiVersion: noetl.io/v2\nkind: Mcp\nmetadata: {name: a, path: a}\n"
    (tmp_path / "mcp.yaml").write_text(
        text + "spec: {transport: http, endpoint: 'https://example.org'}\n"
    )
    code, out, err = noetl("graph", "mcp.yaml")

    assert (code, out) == (7, "")
    assert err.startswith("error[invalid_playbook]: mcp.yaml is a Mcp, not a Playbook\n")


def shown(names, *pairs, **edge):
    return Graph(
        "p",
        tuple(Node(name=name, kinds=("noop",)) for name in names),
        tuple(
            Edge(source=a, target=b, index=n, on="success", **edge)
            for n, (a, b) in enumerate(pairs)
        ),
    )


def test_ranks_are_the_longest_path_and_a_cycle_does_not_count():
    graph = shown("abcd", "ab", "ac", "bc", "cd", "da", "dd")

    assert ranks(graph) == {"a": 0, "b": 1, "c": 2, "d": 3}


def test_a_chain_of_2000_steps_is_drawn():
    names = [f"s{n}" for n in range(2000)]
    root = ET.fromstring(to_svg(shown(names, *pairwise(names))))  # noqa: S314 - our own text

    assert len(root.findall(".//{*}rect")) == 2000


def test_text_of_a_document_stays_text_in_the_picture():
    graph = shown("ab", "ab", "ba", when="a < b and '</svg>' == \"\x1b\"")
    root = ET.fromstring(to_svg(graph))  # noqa: S314 - our own text

    captions = [item.text for item in root.findall(".//{*}text[@class='caption']")]
    assert captions == ["a < b and '</svg>' == \"\\x1b\""] * 2


def test_captions_lie_inside_the_picture():
    graph = shown("ab", "ab", "ba", when="x" * 60)
    root = ET.fromstring(to_svg(graph))  # noqa: S314 - our own text
    left, _, width, _ = (float(n) for n in root.get("viewBox").split())

    for item in root.findall(".//{*}text[@class='caption']"):
        assert left <= float(item.get("x")) - 180
        assert float(item.get("x")) + 180 <= left + width


def test_a_graph_without_nodes_is_still_a_picture():
    ET.fromstring(to_svg(Graph("p", (), ())))  # noqa: S314 - our own text
