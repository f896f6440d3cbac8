//! The table "otherwise than upstream", generated from what is declared.
