//! What the live views of the sandbox and the plugin share: rows of text that fit the columns of a terminal ([`layout`]),
//! and a terminal that is drawn anew and reads keys ([`screen`]). It knows nothing of Kubernetes.

pub mod layout;
pub mod screen;
