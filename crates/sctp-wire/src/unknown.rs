//! Treatment of chunks and parameters of unknown kinds, which their two highest bits select.

/// Treatment that the sender of an unknown chunk or parameter asks for in the two highest bits of its kind (RFC 9260 §3.2, Table
/// 2, and §3.2.1, Table 3).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct UnknownAction {
    /// Stop: for a chunk, process nothing more of the packet; for a parameter, nothing more of the chunk.
    pub stop: bool,
    /// Report it: an unknown chunk with the cause "Unrecognized Chunk Type", an unknown parameter as
    /// RFC 9260 §3.2.2 says.
    pub report: bool,
}

/// Returns the treatment of a chunk of an unknown kind.
pub const fn unknown_chunk_action(kind: u8) -> UnknownAction {
    UnknownAction { stop: kind & 0x80 == 0, report: kind & 0x40 != 0 }
}

/// Returns the treatment of a parameter of an unknown kind.
pub const fn unknown_parameter_action(kind: u16) -> UnknownAction {
    UnknownAction { stop: kind & 0x8000 == 0, report: kind & 0x4000 != 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_rows_of_both_tables() {
        for (bits, stop, report) in
            [(0b00, true, false), (0b01, true, true), (0b10, false, false), (0b11, false, true)]
        {
            let expected = UnknownAction { stop, report };
            assert_eq!(unknown_chunk_action(bits << 6 | 0x3f), expected);
            assert_eq!(unknown_chunk_action(bits << 6), expected);
            assert_eq!(unknown_parameter_action(u16::from(bits) << 14 | 0x3fff), expected);
            assert_eq!(unknown_parameter_action(u16::from(bits) << 14), expected);
        }
    }
}
