"""The contents of an image as SPDX 2.3: the program, and the packages whose files are in the image or were
compiled into the program."""

import hashlib
import re


def identifier(kind, name):
    return "SPDXRef-" + kind + "-" + re.sub(r"[^A-Za-z0-9.-]", "-", name)


def purl(locator):
    return {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}


def debian(kind, package):
    return {
        "SPDXID": identifier(kind, package.name),
        "name": package.name,
        "versionInfo": package.version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "sourceInfo": f"built from the Debian source package {package.source}",
        "externalRefs": [purl(f"pkg:deb/debian/{package.name}@{package.version}?arch={package.architecture}")],
    }


def ours(identity, name, version, purpose, **more):
    return {
        "SPDXID": identity,
        "name": name,
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
        "primaryPackagePurpose": purpose,
        **more,
    }


def document(image, version, created, program, packages, compiled_in):
    """`program`: the bytes of it, as they are in the image."""
    own, executable = identifier("Image", image.title), identifier("Program", image.title)
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", own), (own, "CONTAINS", executable)]
    relations += [(own, "CONTAINS", identifier("Package", one.name)) for one in packages]
    relations += [(executable, "STATIC_LINK", identifier("Compiled", one.name)) for one in compiled_in]
    digest = hashlib.sha256(program).hexdigest()
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"{image.title}-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/libcbt-{image.title}-{version}-{digest[:16]}",
        "creationInfo": {"created": created, "creators": ["Tool: libcbt-image"]},
        "packages": [
            ours(own, image.title, version, "CONTAINER"),
            ours(executable, "libcbt", version, "APPLICATION",
                 checksums=[{"algorithm": "SHA256", "checksumValue": digest}],
                 comment="The checksum is that of the program.",
                 externalRefs=[purl(f"pkg:generic/libcbt@{version}")]),
            *(debian("Package", one) for one in packages),
            *(debian("Compiled", one) for one in compiled_in),
        ],
        "relationships": [{"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}
                          for one, kind, other in relations],
    }
