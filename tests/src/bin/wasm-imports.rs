//! Fails when a WebAssembly module imports anything. This proves that a library needs nothing from its environment.
#![forbid(unsafe_code)]

use std::error::Error;
use std::process::ExitCode;
use std::{env, fs};

use swiftwater_tests::wasm::Module;

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let path = env::args().nth(1).ok_or("usage: wasm-imports MODULE.wasm")?;
    let module = Module::parse(&fs::read(&path)?)?;
    if !module.imports.is_empty() {
        eprintln!("{path} imports {}", module.imports.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    if module.functions == 0 {
        eprintln!("{path} holds no function, so this check says nothing: link its code into it");
        return Ok(ExitCode::FAILURE);
    }
    println!("{path}: {} functions, no import", module.functions);
    Ok(ExitCode::SUCCESS)
}
