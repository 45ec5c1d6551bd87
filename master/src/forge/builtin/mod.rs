//! The built-in forge.
