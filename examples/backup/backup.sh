#!/bin/sh
# Two days of a volume in a bucket: backup, restore, check and retention. For RESTIC_REPOSITORY and
# RESTIC_PASSWORD; $1: an address of SnapshotMetadata, $2: the directory of the snapshots' images.
set -eu
address=$1
images=$2

# [full]
cbtctl backup create vol1 --init --data "$images/vol1/monday.img" \
    --from-service "$address" --snapshot vol1/monday
# [/full]

# [incremental]
cbtctl backup create vol1 --data "$images/vol1/tuesday.img" \
    --from-service "$address" --snapshot vol1/tuesday --require-incremental
# [/incremental]

# [list]
cbtctl backup list vol1
# [/list]

# [restore]
cbtctl backup restore vol1@vol1/monday --to "$images/restored.img"
cmp "$images/restored.img" "$images/vol1/monday.img"
# [/restore]

# [verify]
cbtctl backup verify vol1 --data "$images/vol1/tuesday.img"
# [/verify]

if ! command -v restic >/dev/null; then exit 0; fi

# [restic]
restic check --read-data
restic dump latest /vol1 | cmp - "$images/vol1/tuesday.img"
restic forget --keep-last 1 --group-by paths --prune
# [/restic]
