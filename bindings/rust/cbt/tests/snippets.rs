//! The programs of docs/tutorials/from-rust.md that are no part of the plugin.

use cbt::{Bytes, Cursor, Error, Extent, Geometry, Result, Room, Source};

#[test]
fn read() -> Result<()> {
    let bits = [0x30, 0x80];
    let mut copied = 0;
    let mut copy = |extent: Extent| copied += extent.length;
    // [read]
    let geometry = Geometry {
        capacity: 65536,
        granularity: 4096,
    };
    let changed = Cursor::from_bitmap(&Bytes::borrowed(&bits)?, Default::default(), geometry)?;
    // Few large reads instead of many small ones.
    let mut cursor = changed.coalesce(65536)?.align_outward(8192)?;
    cursor.for_each(|batch| {
        batch.extents().for_each(&mut copy);
        Ok(())
    })?;
    // Here everything was copied.
    // [/read]
    assert_eq!(copied, 65536 - 16384);
    Ok(())
}

// [source]
/// A storage that keeps a list of its writes, in ascending order.
struct Journal {
    writes: Vec<Extent>,
    capacity: u64,
    next: usize,
    from: u64,
}

impl Source for Journal {
    fn seek(&mut self, offset: u64) -> Result<()> {
        self.from = offset;
        self.next = self
            .writes
            .partition_point(|write| write.offset + write.length <= offset);
        Ok(())
    }

    fn next(&mut self, room: &mut Room<'_>) -> Result<u64> {
        while room.left() > 0 && self.next < self.writes.len() {
            let Extent { offset, length } = self.writes[self.next];
            let begin = offset.max(self.from); // the first one may be cut
            room.push(Extent {
                offset: begin,
                length: offset + length - begin,
            });
            self.next += 1;
        }
        // Everything below the next write has been reported, or everything.
        Ok(self
            .writes
            .get(self.next)
            .map_or(self.capacity, |write| write.offset))
    }
}
// [/source]

#[test]
fn source() -> std::result::Result<(), Error> {
    let writes: Vec<_> = (0..5000)
        .map(|number| Extent {
            offset: 16384 * number,
            length: 8192,
        })
        .collect();
    let capacity = 16384 * 5000;
    let journal = Journal {
        writes: writes.clone(),
        capacity,
        next: 0,
        from: 0,
    };
    let geometry = Geometry {
        capacity,
        granularity: 4096,
    };
    let mut cursor = Cursor::from_source(journal, geometry)?;
    assert_eq!(cursor.extents()?, writes);
    cursor.seek(16384 * 4000 + 4096)?;
    let rest = cursor.extents()?;
    assert_eq!(
        rest[0],
        Extent {
            offset: 16384 * 4000 + 4096,
            length: 4096
        }
    );
    assert_eq!(rest[1..], writes[4001..]);
    Ok(())
}
