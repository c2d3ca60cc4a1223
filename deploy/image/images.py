"""Which images there are, and what each of them starts and holds beside its program."""

import dataclasses

USER = 65532  # "nonroot", by the custom of images without a distribution


@dataclasses.dataclass(frozen=True)
class Image:
    title: str
    description: str
    name: str  # of the program when it is started: itself, or a link to it
    ports: tuple
    user: int = USER
    tools: tuple = ()  # programs of the system that it runs
    optional_tools: tuple = ()  # those that a machine may lack, which the command says
    plugins: tuple = ()  # files beside the program's `lib`, and where nbdkit looks for them


# By the program's name.
IMAGES = {
    # By this name the program is the sidecar.
    "cbt-cluster": Image("csi-snapshot-metadata", "Snapshot metadata of CSI drivers, beside a plugin",
                         "csi-snapshot-metadata", ("50051/tcp", "8080/tcp")),
    "cbtctl": Image("cbtctl", "Changed blocks of volumes and their snapshots", "cbtctl", ()),
    # Devices and mounts are root's.
    "cbt-driver": Image("csi-driver", "CSI driver of volumes that know their changes", "cbt-driver",
                        ("9808/tcp",), user=0,
                        tools=("nbdkit", "losetup", "blkid", "mount", "umount", "mkfs.ext2", "mkfs.ext3",
                               "mkfs.ext4", "e2fsck", "resize2fs"),
                        optional_tools=("mkfs.xfs", "xfs_growfs", "nbd-client"),
                        plugins=("nbdkit-cbt-plugin.so",)),
}
