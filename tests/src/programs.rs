//! Programs in C for tests, and the libraries that give them SCTP sockets.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Environment variable with the folder where the shim and the C library were built.
const BUILT_VARIABLE: &str = "SWIFTWATER_BUILT";

/// Compiles a program in C under this name, with the C compiler that Rust links with and further arguments.
///
/// # Panics
///
/// If there is no compiler, or it fails.
#[must_use]
pub fn compiled(source: &Path, name: &str, arguments: &[&str]) -> PathBuf {
    let program = scratch().join(name);
    let compiler = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-D_FORTIFY_SOURCE=2", "-pthread"])
        // For programs that make requests themselves.
        .arg(format!("-DCHANNEL_VERSION={}", channel_protocol::VERSION))
        .arg("-o")
        .args([&program, source])
        .args(arguments)
        .output()
        .expect("a C compiler");
    assert!(compiler.status.success(), "{}", String::from_utf8_lossy(&compiler.stderr));
    program
}

/// Builds the shim, and returns its path.
///
/// # Panics
///
/// If it cannot be built.
pub fn shim() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| built("swiftwater-preload").join("libswiftwater_preload.so"))
}

/// Builds the C library, and returns a folder with the names that the linker and the loader look for.
///
/// # Panics
///
/// If it cannot be built.
pub fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let built = built("swiftwater-capi");
        let folder = scratch().join("library");
        // Removes the remains of an earlier run.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a folder of our own");
        for (file, name) in [
            ("libswiftwater.so", "libswiftwater.so"),
            ("libswiftwater.so", "libswiftwater.so.0"),
            ("libswiftwater.a", "libswiftwater.a"),
        ] {
            symlink(built.join(file), folder.join(name)).expect("a folder of our own");
        }
        folder
    })
}

/// Returns a folder for the files of tests, in the target folder.
///
/// # Panics
///
/// If it cannot be made.
#[must_use]
pub fn scratch() -> PathBuf {
    let folder = target_folder().join("tmp");
    fs::create_dir_all(&folder).expect("a folder of our own");
    folder
}

/// Builds a package as the running test program was built, unless `./test` has; returns the folder of the results.
fn built(package: &str) -> PathBuf {
    if let Some(folder) = env::var_os(BUILT_VARIABLE) {
        return folder.into();
    }
    let target = target_folder();
    let status = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "-p", package, "--target-dir"])
        .arg(&target)
        .status()
        .expect("cargo is there");
    assert!(status.success());
    target.join("debug")
}

/// Returns the target folder; a test program is `TARGET/debug/deps/NAME`.
fn target_folder() -> PathBuf {
    let program = env::current_exe().expect("a test program has a file");
    program.ancestors().nth(3).expect("a target folder").to_owned()
}
