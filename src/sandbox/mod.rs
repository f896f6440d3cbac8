//! (see lib.rs)

pub mod defaults;
pub mod openapi;
pub mod quantity;
pub mod selector;
pub mod strategic;
pub mod strict;
pub mod table;
pub mod validate;

#[cfg(test)]
mod robustness;
