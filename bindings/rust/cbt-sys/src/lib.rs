//! The functions of `cbt/c/cbt.h` and their types, as bindgen makes them. The headers say what each
//! does; the crate `cbt` is the safe way to use them.
//!
//! libcbt is found by pkg-config (`cbt-c`). `CBT_RUST_PACKAGE=cbt-c-static` links the archive.
#![no_std]
#![allow(
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case
)]

include!("bindings.rs");
