//! What the storage knows, and the provider.

use cbt::{Answer, Bytes, Code, Cursor, Error, Geometry, Operation, Request, Result};

// [storage]
// What the storage knows: a bit for each block of 4 KiB of a volume of 64 KiB, set where the block
// was written since the volume was made, at each of two snapshots.
const VOLUME: Geometry = Geometry {
    capacity: 65536,
    granularity: 4096,
};

fn find(snapshot: &str) -> Result<Bytes<'static>> {
    match snapshot {
        "monday" => Bytes::borrowed(&[0x0f, 0x00]),
        "tuesday" => Bytes::borrowed(&[0x3f, 0x80]),
        _ => Err(Error::new(Code::NotFound, "no such snapshot")),
    }
}
// [/storage]

// [provider]
/// Opens the source of one call: the target's bits, or those that differ from the base's.
pub fn open(request: &Request<'_>) -> Result<Answer> {
    let target = find(request.target())?;
    let layout = Default::default();
    let cursor = match request.base() {
        None => Cursor::from_bitmap(&target, layout, VOLUME)?,
        Some(base) => Cursor::from_bitmaps(&find(base)?, &target, Operation::Xor, layout, VOLUME)?,
    };
    Ok(Answer::new(cursor).version("1"))
}
// [/provider]
