#!/usr/bin/env python3
"""Writes to an RBD image, or discards a range: image.py write NAME OFFSET FILE, image.py discard
NAME OFFSET LENGTH.
"""

import os
import sys

import rados
import rbd

what, name, offset, argument = sys.argv[1:]
with rados.Rados(conffile=os.environ["CEPH_CONF"]) as cluster, cluster.open_ioctx("rbd") as pool, rbd.Image(pool, name) as image:
    if what == "write":
        with open(argument, "rb") as file:
            image.write(file.read(), int(offset))
    else:
        image.discard(int(offset), int(argument))
