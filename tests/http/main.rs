//! What the daemon serves over HTTP and HTTPS, and to whom: real sockets and real time, no process of its own.

mod hostile_http;
mod serving;
mod termination_message;
