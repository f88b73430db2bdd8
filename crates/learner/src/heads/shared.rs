//! Definitions of heads that a model and the snapshots of it have in common.

use super::Head;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::ops::Deref;
use std::sync::Arc;

/// A list of heads, of which a clone is the same list.
#[derive(Clone, Debug, Default)]
pub struct SharedHeads(Arc<Vec<Head>>);

impl SharedHeads {
    /// The list, to be changed: a copy, where others have it as well.
    pub(super) fn to_mut(&mut self) -> &mut Vec<Head> {
        Arc::make_mut(&mut self.0)
    }
}

impl Deref for SharedHeads {
    type Target = [Head];

    fn deref(&self) -> &[Head] {
        &self.0
    }
}

impl PartialEq for SharedHeads {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0 == other.0
    }
}

impl From<Vec<Head>> for SharedHeads {
    fn from(heads: Vec<Head>) -> Self {
        Self(Arc::new(heads))
    }
}

impl FromIterator<Head> for SharedHeads {
    fn from_iter<I: IntoIterator<Item = Head>>(heads: I) -> Self {
        Self::from(heads.into_iter().collect::<Vec<Head>>())
    }
}

impl<'a> IntoIterator for &'a SharedHeads {
    type Item = &'a Head;
    type IntoIter = std::slice::Iter<'a, Head>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl Serialize for SharedHeads {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(to)
    }
}

impl<'de> Deserialize<'de> for SharedHeads {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Vec::<Head>::deserialize(from).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::{Cumulant, Rate};

    #[test]
    fn a_list_that_others_have_is_copied_before_it_changes() {
        let head = |name: &str| Head::new(name, Cumulant::Constant(1.0), Rate::Discount(0.5));
        let mut one: SharedHeads = [head("a"), head("b")].into_iter().collect();
        let other = one.clone();
        assert!(std::ptr::eq(&one[0], &other[0]) && one == other);
        one.to_mut().pop();
        assert_eq!((one.len(), other.len()), (1, 2));
        assert_eq!(one, SharedHeads::from(vec![head("a")]));
        // As a list is written.
        let written = rmp_serde::to_vec_named(&other).unwrap();
        assert_eq!(written, rmp_serde::to_vec_named(&[head("a"), head("b")].to_vec()).unwrap());
        assert_eq!(rmp_serde::from_slice::<SharedHeads>(&written).unwrap(), other);
    }
}
