//! Checks that every env must pass.
