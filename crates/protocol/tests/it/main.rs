//! Tests of the protocol from outside, in one program, so that it is linked once.

mod wire;
