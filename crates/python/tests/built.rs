//! The module itself is tested from Python (`python/tests/test_learner.py`).

/// Cargo builds it for this test, so that the tests in Python find it beside the program.
#[test]
fn the_module_is_built_with_the_tests() {
    let beside = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let name = format!("{}_learner{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
    assert!(beside.join(&name).is_file(), "there is no {name} in {}", beside.display());
}
