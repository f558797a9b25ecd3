//! Reads the import section of a WebAssembly module, which shows what the module needs from its environment.

/// The eight bytes at the start of a module: magic number and version 1.
const PREAMBLE: [u8; 8] = *b"\0asm\x01\0\0\0";
const IMPORT_SECTION: u8 = 2;
const CODE_SECTION: u8 = 10;

/// Imports and exports of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Module {
    /// `module.name` of every import.
    pub imports: Vec<String>,
    /// Number of functions: a module without functions shows nothing about its imports.
    pub functions: u32,
}

/// Reason why a file could not be read as a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModuleError {
    /// It does not start as a module does.
    NotAModule,
    /// It ends in the middle of an item.
    Truncated,
    /// It uses an encoding that this reader does not know.
    Unknown,
}

impl std::fmt::Display for ModuleError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NotAModule => "the file is no WebAssembly module; name a .wasm file",
            Self::Truncated => "the module ends too early; build it again",
            Self::Unknown => "the module uses an encoding that is not known here; teach `wasm.rs` about it",
        })
    }
}

impl std::error::Error for ModuleError {}

impl Module {
    /// Reads the sections of a module in the binary format, version 1.
    ///
    /// # Errors
    /// If the bytes are not such a module.
    pub fn parse(bytes: &[u8]) -> Result<Self, ModuleError> {
        let body = bytes.strip_prefix(&PREAMBLE).ok_or(ModuleError::NotAModule)?;
        let mut module = Self { imports: Vec::new(), functions: 0 };
        let mut reader = Reader(body);
        while !reader.0.is_empty() {
            let id = reader.byte()?;
            let length = reader.number()?;
            let mut section = Reader(reader.take(length)?);
            match id {
                IMPORT_SECTION => module.imports = section.imports()?,
                CODE_SECTION => module.functions = section.number()?,
                _ => {}
            }
        }
        Ok(module)
    }
}

/// The bytes that are left to read.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Result<u8, ModuleError> {
        let (&first, rest) = self.0.split_first().ok_or(ModuleError::Truncated)?;
        self.0 = rest;
        Ok(first)
    }

    fn take(&mut self, length: u32) -> Result<&'a [u8], ModuleError> {
        let (taken, rest) = self.0.split_at_checked(length as usize).ok_or(ModuleError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads an unsigned number of up to 32 bits in LEB128, the encoding of all counts in the format.
    fn number(&mut self) -> Result<u32, ModuleError> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return u32::try_from(value).map_err(|_| ModuleError::Unknown);
            }
        }
        Err(ModuleError::Unknown)
    }

    fn name(&mut self) -> Result<String, ModuleError> {
        let length = self.number()?;
        Ok(String::from_utf8_lossy(self.take(length)?).into_owned())
    }

    fn imports(&mut self) -> Result<Vec<String>, ModuleError> {
        let count = self.number()?;
        let mut imports = Vec::new();
        for _ in 0..count {
            let name = format!("{}.{}", self.name()?, self.name()?);
            self.description()?;
            imports.push(name);
        }
        Ok(imports)
    }

    /// Skips the description of an import: its length depends on its kind.
    fn description(&mut self) -> Result<(), ModuleError> {
        match self.byte()? {
            0 => self.number().map(drop),                            // function: its type
            1 => self.byte().and_then(|_| self.limits()),            // table: its element type and limits
            2 => self.limits(),                                      // memory
            3 => self.take(2).map(drop), // global: its type and whether it can change
            4 => self.take(1).and_then(|_| self.number()).map(drop), // exception tag
            _ => Err(ModuleError::Unknown),
        }
    }

    fn limits(&mut self) -> Result<(), ModuleError> {
        let has_maximum = self.byte()? & 1 == 1;
        self.number()?;
        if has_maximum {
            self.number()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn module(sections: &[&[u8]]) -> Vec<u8> {
        [&PREAMBLE[..], &sections.concat()].concat()
    }

    #[test]
    fn an_empty_module_wants_nothing() {
        let expected = Module { imports: vec![], functions: 0 };
        assert_eq!(Module::parse(&module(&[])), Ok(expected));
    }

    #[test]
    fn every_kind_of_import_is_named() {
        let imports = b"\x02\x28\x04\x03env\x03now\x00\x00\x03env\x01t\x01\x70\x00\x05\x03env\x01m\x02\x01\x01\x02\x03env\x01g\x03\x7f\x00";
        let code = b"\x0a\x01\x00";
        let parsed = Module::parse(&module(&[imports, code])).unwrap();
        assert_eq!(parsed.imports, ["env.now", "env.t", "env.m", "env.g"]);
    }

    #[test]
    fn functions_are_counted() {
        assert_eq!(Module::parse(&module(&[b"\x0a\x02\x80\x01"])).map(|m| m.functions), Ok(128));
    }

    #[test]
    fn a_file_of_another_kind_is_refused() {
        assert_eq!(Module::parse(b"\x7fELF\x02\x01\x01\0"), Err(ModuleError::NotAModule));
    }

    #[test]
    fn a_truncated_module_is_refused() {
        assert_eq!(Module::parse(&module(&[b"\x02\x05\x01"])), Err(ModuleError::Truncated));
    }
}
