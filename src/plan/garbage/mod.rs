//! The garbage collector's decisions: who owns whom, what is proved, and what becomes of an object.
//!
//! The one guarantee: nothing is deleted because it is missing from a cache. That an owner does not exist is proved for
//! each, by its deletion or by an answer about itself ([`graph`]); then its dependents follow it ([`fate`]).

mod arena;
pub mod fate;
pub mod graph;
pub mod patch;
mod texts;
