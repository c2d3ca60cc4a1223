//! Finds libcbt: the folder `CBT_LIB_DIR`, or pkg-config's package `cbt-c`, or the one that
//! `CBT_RUST_PACKAGE` names.

use std::{env, path::Path, process::Command};

fn main() {
    for name in [
        "CBT_LIB_DIR",
        "CBT_RUST_PACKAGE",
        "PKG_CONFIG",
        "PKG_CONFIG_PATH",
    ] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if let Ok(folder) = env::var("CBT_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        println!("cargo:rustc-link-lib=dylib=cbt");
        return;
    }
    let package = env::var("CBT_RUST_PACKAGE").unwrap_or_else(|_| "cbt-c".to_owned());
    let found = Command::new(env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_owned()))
        .args(["--libs", &package])
        .output();
    let flags = match found {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).into_owned()
        }
        Ok(output) => panic!(
            "pkg-config does not find {package}: {}install libcbt-dev, or name its folder in \
             PKG_CONFIG_PATH",
            String::from_utf8_lossy(&output.stderr)
        ),
        Err(error) => panic!("pkg-config can't be run ({error}): install it"),
    };
    for flag in flags.split_whitespace() {
        let archive = Path::new(flag);
        if let Some(folder) = flag.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
        } else if let Some(library) = flag.strip_prefix("-l") {
            println!("cargo:rustc-link-lib=dylib={library}");
        } else if let (Some(folder), true) = (archive.parent(), flag.ends_with("/libcbt.a")) {
            println!("cargo:rustc-link-search=native={}", folder.display());
            println!("cargo:rustc-link-lib=static=cbt");
        }
    }
}
