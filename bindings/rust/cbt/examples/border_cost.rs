//! What a call across the border costs: batches of one extent, less what the extent itself costs in
//! a large batch. `cargo run --release --example border_cost`

use std::ffi::c_long;

use cbt::{Bytes, Cursor, Geometry, Result};

const EXTENTS: u64 = 8_000_000;

extern "C" {
    // Time of the processor, in microseconds: others may use the machine.
    fn clock() -> c_long;
}

/// Nanoseconds for each extent.
fn read(cursor: &mut Cursor<'_>, batch: u64) -> Result<f64> {
    cursor.set_batch(batch)?;
    cursor.seek(0)?;
    // SAFETY: it takes and returns a number.
    let begin = unsafe { clock() };
    let mut found = 0;
    cursor.for_each(|batch| {
        found += batch.offsets().len() as u64;
        Ok(())
    })?;
    assert_eq!(found, EXTENTS);
    // SAFETY: as above.
    let used = unsafe { clock() } - begin;
    Ok(used as f64 * 1e3 / EXTENTS as f64)
}

fn main() -> Result<()> {
    let bits = vec![0x55; EXTENTS as usize / 4];
    let geometry = Geometry {
        capacity: 2 * EXTENTS * 4096,
        granularity: 4096,
    };
    let bytes = Bytes::borrowed(&bits)?;
    let mut cursor = Cursor::from_bitmap(&bytes, Default::default(), geometry)?;
    for _ in 0..3 {
        let (one, many) = (read(&mut cursor, 1)?, read(&mut cursor, 1024)?);
        println!(
            "{:.1} ns for a call, {many:.2} ns for an extent",
            one - many
        );
    }
    Ok(())
}
