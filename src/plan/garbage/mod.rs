//! The garbage collector's decisions: who owns whom, what is proved, and what becomes of an object.
//!
//! The one guarantee: nothing is deleted because it is missing from a cache. That an owner does not exist is proved for
//! each, by its deletion or by an answer about itself ([`graph`]); then its dependents follow it ([`decision`]).

mod arena;
pub mod decision;
pub mod graph;
mod name_arena;
pub mod patch;
