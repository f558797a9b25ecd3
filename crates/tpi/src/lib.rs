//! Transport Provider Interface primitives.
#![forbid(unsafe_code)]
