use std::mem;

use cbt_sys as sys;

use crate::{cursor::Cursor, error::check, Result};

/// A cursor as an Arrow stream, through Arrow's C interface: the columns `byte_offset` and
/// `size_bytes`, both `uint64` without nulls. Dropped, it is released.
#[derive(Debug)]
pub struct ArrowStream {
    raw: Box<sys::ArrowArrayStream>,
}

impl Cursor<'static> {
    /// The rest of the cursor as record batches of at most `rows` rows (0: 65,536).
    pub fn into_arrow(self, rows: u64) -> Result<ArrowStream> {
        // SAFETY: zeros are a released stream.
        let mut raw: Box<sys::ArrowArrayStream> = Box::new(unsafe { mem::zeroed() });
        let cursor = self.into_raw();
        // SAFETY: the cursor is ours and given away.
        check(|error| unsafe { sys::cbt_cursor_export_arrow(cursor, rows, &mut *raw, error) })?;
        Ok(ArrowStream { raw })
    }
}

impl ArrowStream {
    /// The structure itself, for a consumer such as `FFI_ArrowArrayStream::from_raw()`, which moves
    /// out of it: a stream whose `release` is empty was taken.
    pub fn as_mut_ptr(&mut self) -> *mut sys::ArrowArrayStream {
        &mut *self.raw
    }
}

impl Drop for ArrowStream {
    fn drop(&mut self) {
        if let Some(release) = self.raw.release {
            // SAFETY: not released or taken yet.
            unsafe { release(&mut *self.raw) }
        }
    }
}
