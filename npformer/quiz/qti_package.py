"""Make a QTI package: a zip file with XML files and a manifest, which lists the files and their formats."""

import io
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from xml.etree import ElementTree as ET
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

PACKAGING = "http://www.imsglobal.org/xsd/imscp_v1p1"  # the name of the namespace; no program opens it
DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>\n'
MANIFEST = "imsmanifest.xml"
NOTHING: Mapping[str, Iterable[str]] = MappingProxyType({})


def format_xml(root: ET.Element) -> str:
    """Return an element as the content of an XML file."""
    return DECLARATION + ET.tostring(root, encoding="unicode") + "\n"


def make_package(
    files: Mapping[str, str],
    formats: Mapping[str, str],
    schema: tuple[str, str],
    needed: Mapping[str, Iterable[str]] = NOTHING,
) -> bytes:
    """Return the zip file of a package.

    Parameters
    ----------
    files : mapping
        The content of each file, by its name.
    formats : mapping
        The name of the format of each file, as the manifest calls it.
    schema : tuple of two str
        The name and the version of the schema that the manifest names.
    needed : mapping
        The other files to which a file refers.

    Returns
    -------
    data : bytes
        Equal files give equal bytes, because the times of the files are left out.
    """
    buffer = io.BytesIO()
    with ZipFile(buffer, "w") as archive:
        for name, text in {MANIFEST: _write_manifest(formats, schema, needed), **files}.items():
            member = ZipInfo(name)
            member.compress_type = ZIP_DEFLATED
            archive.writestr(member, text)
    return buffer.getvalue()


def _write_manifest(
    formats: Mapping[str, str], schema: tuple[str, str], needed: Mapping[str, Iterable[str]]
) -> str:
    """Return the manifest."""
    root = ET.Element("manifest", identifier="npformer_manifest", xmlns=PACKAGING)
    metadata = ET.SubElement(root, "metadata")
    for name, text in zip(("schema", "schemaversion"), schema, strict=True):
        ET.SubElement(metadata, name).text = text
    ET.SubElement(root, "organizations")
    resources = ET.SubElement(root, "resources")
    for name, format in formats.items():
        attributes = {"identifier": _name_resource(name), "type": format, "href": name}
        resource = ET.SubElement(resources, "resource", attributes)
        ET.SubElement(resource, "file", href=name)
        for other in needed.get(name, ()):
            ET.SubElement(resource, "dependency", identifierref=_name_resource(other))
    return format_xml(root)


def _name_resource(file: str) -> str:
    """Return the identifier of a file in the manifest."""
    return f"resource_{file.removesuffix('.xml')}"
