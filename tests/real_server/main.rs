//! Against a real kube-apiserver.

mod apiserver;
mod installation;
