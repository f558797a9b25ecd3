//! Programs of extended BPF, which unlike classic ones have memory: what a socket filter with tables needs, and no more.
//!
//! A filter begins with the packet in register 1, and returns in register 0 how many bytes of it the socket receives. Loads from
//! the packet want it in register 6, return the value in register 0, change registers 1 to 5, and end the program with 0 if the
//! packet is too short. The kernel checks each program before it accepts it.

use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{
    BPF_ABS, BPF_AND, BPF_IMM, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K, BPF_LD, BPF_LSH, BPF_MEM,
    BPF_MUL, BPF_OR, BPF_RSH, BPF_SUB, BPF_X, BPF_XOR,
};

// These are not in the `libc` crate (include/uapi/linux/bpf.h).
const BPF_ALU64: u32 = 0x07;
const BPF_LDX: u32 = 0x01;
const BPF_STX: u32 = 0x03;
const BPF_ADD: u32 = 0x00;
const BPF_MOV: u32 = 0xb0;
const BPF_JNE: u32 = 0x50;
const BPF_JLT: u32 = 0xa0;
const BPF_CALL: u32 = 0x80;
const BPF_EXIT: u32 = 0x90;
const BPF_DW: u32 = 0x18;
const BPF_ATOMIC: u32 = 0xc0;
const BPF_PSEUDO_MAP_VALUE: u8 = 2;
const KTIME_GET_NS: i32 = 5;

/// A register; the number is the kernel's. Calls and loads from the packet keep 6 to 9 alone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Register {
    R0 = 0,
    R1 = 1,
    R2 = 2,
    R3 = 3,
    R4 = 4,
    R5 = 5,
    R6 = 6,
    R7 = 7,
    R8 = 8,
    R9 = 9,
}

use Register::{R0, R1};

/// An instruction (`struct bpf_insn` of little-endian processors; the kernels of others refuse such a program).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// The destination in the low half, the source in the high one.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// An operation on 64 bits of the first operand, which receives the result.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Operation {
    Add = BPF_ADD as isize,
    Subtract = BPF_SUB as isize,
    Multiply = BPF_MUL as isize,
    And = BPF_AND as isize,
    Or = BPF_OR as isize,
    Xor = BPF_XOR as isize,
    ShiftLeft = BPF_LSH as isize,
    ShiftRight = BPF_RSH as isize,
    Move = BPF_MOV as isize,
}

/// A comparison with a number, or that of two registers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Comparison {
    Equal = BPF_JEQ as isize,
    NotEqual = BPF_JNE as isize,
    /// These two take the numbers without sign.
    AtLeast = BPF_JGE as isize,
    Below = BPF_JLT as isize,
}

/// A jump whose target is not known yet.
#[must_use = "a jump needs a target"]
#[derive(Debug)]
pub(crate) struct Jump(usize);

/// A program under construction.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    instructions: Vec<Instruction>,
}

impl Assembler {
    pub(crate) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }

    fn push(&mut self, code: u32, to: Register, from: u8, offset: i16, immediate: i32) {
        let registers = to as u8 | from << 4;
        self.instructions.push(Instruction { code: code as u8, registers, offset, immediate });
    }

    /// Applies an operation to a register and a number, which is extended with its sign.
    pub(crate) fn calculate(&mut self, operation: Operation, to: Register, number: i32) {
        self.push(BPF_ALU64 | operation as u32 | BPF_K, to, 0, 0, number);
    }

    /// Applies an operation to two registers.
    pub(crate) fn combine(&mut self, operation: Operation, to: Register, from: Register) {
        self.push(BPF_ALU64 | operation as u32 | BPF_X, to, from as u8, 0, 0);
    }

    /// Loads a number of 64 bits.
    pub(crate) fn load_number(&mut self, to: Register, number: u64) {
        self.push(BPF_LD | BPF_DW | BPF_IMM, to, 0, 0, number as i32);
        self.push(0, R0, 0, 0, (number >> 32) as i32);
    }

    /// Loads the address of a word of 64 bits in a table.
    pub(crate) fn load_address(&mut self, to: Register, (table, word): (BorrowedFd<'_>, usize)) {
        let offset = (word * size_of::<u64>()) as i32;
        self.push(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_VALUE, 0, table.as_raw_fd());
        self.push(0, R0, 0, 0, offset);
    }

    /// Loads a part of the packet into register 0, in host order. `width` is `BPF_B`, `BPF_H` or `BPF_W`.
    pub(crate) fn load_packet(&mut self, width: u32, offset: i32) {
        self.push(BPF_LD | BPF_ABS | width, R0, 0, 0, offset);
    }

    /// Loads a part of the packet as [`load_packet`](Self::load_packet) does, behind a header whose length is in a register.
    pub(crate) fn load_packet_behind(&mut self, header_bytes: Register, width: u32, offset: i32) {
        self.push(BPF_LD | BPF_IND | width, R0, header_bytes as u8, 0, offset);
    }

    /// Loads 64 bits from an address in a register.
    pub(crate) fn load(&mut self, to: Register, address: Register) {
        self.push(BPF_LDX | BPF_MEM | BPF_DW, to, address as u8, 0, 0);
    }

    /// Stores 64 bits at an address in a register.
    pub(crate) fn store(&mut self, address: Register, from: Register) {
        self.push(BPF_STX | BPF_MEM | BPF_DW, address, from as u8, 0, 0);
    }

    /// Adds one to a word in a table. Changes registers 0 and 1.
    pub(crate) fn count(&mut self, word: (BorrowedFd<'_>, usize)) {
        self.load_address(R1, word);
        self.calculate(Operation::Move, R0, 1);
        self.push(BPF_STX | BPF_ATOMIC | BPF_DW, R1, R0 as u8, 0, BPF_ADD as i32);
    }

    /// Loads the nanoseconds since the start of the system into register 0. Changes registers 1 to 5.
    pub(crate) fn load_time(&mut self) {
        self.push(BPF_JMP | BPF_CALL, R0, 0, 0, KTIME_GET_NS);
    }

    /// Ends the program; register 0 is the result.
    pub(crate) fn exit(&mut self) {
        self.push(BPF_JMP | BPF_EXIT, R0, 0, 0, 0);
    }

    pub(crate) fn jump(&mut self) -> Jump {
        self.push(BPF_JMP | BPF_JA, R0, 0, 0, 0);
        Jump(self.instructions.len())
    }

    /// Jumps if a register compares with a number like this.
    pub(crate) fn jump_if(&mut self, comparison: Comparison, left: Register, right: i32) -> Jump {
        self.push(BPF_JMP | comparison as u32 | BPF_K, left, 0, 0, right);
        Jump(self.instructions.len())
    }

    /// Jumps if two registers compare like this.
    pub(crate) fn jump_if_registers(
        &mut self,
        comparison: Comparison,
        left: Register,
        right: Register,
    ) -> Jump {
        self.push(BPF_JMP | comparison as u32 | BPF_X, left, right as u8, 0, 0);
        Jump(self.instructions.len())
    }

    /// Makes the next instruction the target of a jump.
    pub(crate) fn land(&mut self, jump: Jump) {
        self.instructions[jump.0 - 1].offset = (self.instructions.len() - jump.0) as i16;
    }
}
