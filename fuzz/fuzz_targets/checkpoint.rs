#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| criticd_fuzz::checkpoint(data));
