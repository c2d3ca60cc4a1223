"""csi-sanity's part for the node adapter. Not a test."""

# Its volumes come from a controller, which inline volumes have not: what needs none.
FOCUS = ("Identity Service|NodeGetCapabilities|NodeGetInfo|NodePublishVolume should fail|"
         "NodeUnpublishVolume should fail")


def command(assets, socket, folder):
    return [f"{assets}/csi-sanity", "-csi.endpoint", "unix:" + socket, "-csi.mountdir", f"{folder}/mount",
            "-csi.stagingdir", f"{folder}/stage", "-ginkgo.no-color", "-ginkgo.focus", FOCUS]
