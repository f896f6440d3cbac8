//! Where each of upstream's own integration tests has its counterpart.
