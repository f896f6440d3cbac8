//! The repository itself: sources, manifests, workflows, and documents that must say what the code has.

mod circles;
mod differences;
mod examples;
mod manifests;
mod mistakes;
mod operations;
mod packaging;
mod pipeline;
mod plugin;
mod sources;
mod tidy;
