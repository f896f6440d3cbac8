//! The HTTP and HTTPS servers of the daemon: real sockets and real time, no process of its own.

mod client_chains;
mod hostile_http;
mod serving;
mod termination_message;
