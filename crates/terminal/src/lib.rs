//! The terminal of the live views of the sandbox and the plugin: rows of text that fit its columns ([`layout`]), and a screen
//! that is drawn anew and reads keys ([`screen`]). It knows nothing of Kubernetes.

pub mod layout;
pub mod screen;
