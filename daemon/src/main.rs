//! Nothing to run yet.

fn main() {}
