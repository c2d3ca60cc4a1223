//! Changed-block metadata of volumes: cursors over what has changed or is allocated, change maps and
//! chains, trackers of writes, and the CSI `SnapshotMetadata` service as a state machine for any
//! gRPC library. A safe interface over libcbt's C interface; the headers in `cbt/c/` have units,
//! costs and errors of each call.
//!
//! ```
//! use cbt::{Bytes, Cursor, Extent, Geometry};
//!
//! let geometry = Geometry { capacity: 65536, granularity: 4096 };
//! let bits = [0b0011_0000, 0b1000_0000];
//! let mut cursor = Cursor::from_bitmap(&Bytes::borrowed(&bits)?, Default::default(), geometry)?;
//! assert_eq!(
//!     cursor.extents()?,
//!     [Extent { offset: 16384, length: 8192 }, Extent { offset: 61440, length: 4096 }]
//! );
//! # Ok::<(), cbt::Error>(())
//! ```
//!
//! **Never less than the truth.** A failure never looks like the end of an answer: see [`Batch`] and
//! [`Batches`].
//!
//! **Panics** in a [`Source`] or a [`Provider`] do not cross the border: they are INTERNAL. A panic
//! of a program that was compiled with `panic = "abort"` ends it.

mod arrow;
mod bytes;
mod chain;
mod cursor;
mod error;
mod map;
mod source;
mod stream;
mod tracker;
mod wire;

pub use arrow::ArrowStream;
pub use bytes::Bytes;
pub use chain::{Access, Chain, ChainOptions, Snapshot};
pub use cursor::{
    Batch, Batches, BitmapLayout, Cursor, Extent, Geometry, Operation, OwnedBatch, Purpose,
    SourceOptions,
};
pub use error::{Code, Error, Result};
pub use map::{Map, MapBuilder, MapInfo};
pub use source::{Room, Source};
pub use stream::{
    Answer, Canceller, Event, Message, Metadata, Provider, Request, Service, ServiceOptions,
    Stream, StreamOptions,
};
pub use tracker::{Epoch, Tracker, TrackerOptions, Write};
pub use wire::{Checker, CheckerOptions, Proof, Style, Tuples};

use std::ffi::CStr;

/// The version of the loaded library, `major.minor.patch`.
pub fn version() -> &'static str {
    // SAFETY: the text is static.
    unsafe { CStr::from_ptr(cbt_sys::cbt_version_string()) }
        .to_str()
        .unwrap_or("")
}

/// The binary interface of the loaded library: (major, minor).
pub fn abi_version() -> (u32, u32) {
    // SAFETY: no arguments, no state.
    let version = unsafe { cbt_sys::cbt_abi_version() };
    (version >> 16, version & 0xffff)
}

/// The instruction set that the kernels use: `scalar`, `sse42`, `avx2`, `avx512` or `neon`.
pub fn simd_level() -> &'static str {
    // SAFETY: the text is static.
    unsafe { CStr::from_ptr(cbt_sys::cbt_simd_level()) }
        .to_str()
        .unwrap_or("")
}
