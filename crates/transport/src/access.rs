//! Who may do what: rights, and the addresses and keys that have them.
//!
//! A peer on a unix socket has passed the permissions of its file and may do everything. One on TCP has the rights of the
//! narrowest range in the settings that its address lies in; where none does, everything from loopback, nothing from
//! elsewhere. One that came in through CURVE has the rights of its key, wherever it is.

pub use criticd_protocol::rights::{Right, Rights};

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// Addresses, and the rights of their peers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// The addresses: one alone, or a range with the length of its prefix.
    #[serde(with = "range")]
    pub addresses: IpNet,
    /// What they may do.
    #[serde(default = "all")]
    pub rights: Rights,
}

/// A client that is known by its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KnownClient {
    /// What log lines call it.
    pub name: String,
    /// Its public key in Z85, 40 characters.
    pub key: String,
    /// What it may do.
    #[serde(default = "all")]
    pub rights: Rights,
}

fn all() -> Rights {
    Rights::ALL
}

/// An address alone is the range that holds nothing else.
mod range {
    use ipnet::{IpNet, Ipv4Net, Ipv6Net};
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};
    use std::net::IpAddr;

    pub(super) fn serialize<S: Serializer>(range: &IpNet, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(range)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<IpNet, D::Error> {
        let text = String::deserialize(deserializer)?;
        let alone = || text.parse::<IpAddr>().map(IpNet::from);
        let range = text.parse::<IpNet>().ok().or_else(|| alone().ok());
        let range = range.ok_or_else(|| Error::custom(format!("{text:?} is neither an address nor ADDRESS/PREFIX")))?;
        // What lies outside the prefix is a slip, or was meant to be narrower.
        if range.trunc() != range {
            return Err(Error::custom(format!("{text:?} names one address of a range: write {}", range.trunc())));
        }
        canonical(range).ok_or_else(|| {
            Error::custom(format!("{text:?} holds addresses of version 4 and of version 6: write them as two ranges"))
        })
    }

    /// As peers' addresses are compared: addresses of version 4 as such, although they are written as version 6. None where a
    /// range holds these and others.
    fn canonical(range: IpNet) -> Option<IpNet> {
        /// Bits before an address of version 4 that is written as version 6.
        const MAPPED: u8 = 96;
        let IpNet::V6(of_v6) = range else { return Some(range) };
        let mapped: Ipv6Net = "::ffff:0:0/96".parse().expect("it is a range");
        if !mapped.contains(&of_v6) {
            return (!of_v6.contains(&mapped) || of_v6.prefix_len() == 0).then_some(range);
        }
        let address = of_v6.network().to_ipv4_mapped()?;
        Ipv4Net::new(address, of_v6.prefix_len() - MAPPED).ok().map(IpNet::V4)
    }
}

/// What peers without keys may do, by where they come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Ranges and their rights; the narrowest that holds an address counts.
    pub allow: Vec<Allow>,
}

impl Access {
    /// The rights of a peer at `address`; none where it came through a unix socket.
    pub fn rights(&self, address: Option<IpAddr>) -> Rights {
        let Some(address) = address.map(|address| address.to_canonical()) else { return Rights::ALL };
        let holding = self.allow.iter().filter(|allow| allow.addresses.contains(&address));
        match holding.max_by_key(|allow| allow.addresses.prefix_len()) {
            Some(allow) => allow.rights,
            None if address.is_loopback() => Rights::ALL,
            None => Rights::NONE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allow(range: &str, rights: &[Right]) -> Allow {
        Allow { addresses: range.parse().unwrap(), rights: rights.to_vec().into() }
    }

    #[test]
    fn every_set_of_rights_is_told_apart() {
        for byte in 0..=Rights::ALL.to_byte() {
            let rights = Rights::from_byte(byte);
            assert_eq!(Rights::from(Vec::from(rights)), rights);
            assert_eq!(rights.to_byte(), byte);
            assert_eq!(rights.has_any(&Right::ALL), rights != Rights::NONE);
            for right in Right::ALL {
                assert_eq!(rights.has(right), rights.to_string().contains(right.name()), "{rights}");
            }
        }
        assert_eq!(Rights::from_byte(0xff), Rights::ALL);
        assert_eq!(Rights::NONE.to_string(), "nothing");
    }

    #[test]
    fn ranges_of_version_4_may_be_written_as_version_6() {
        let read = |text: &str| {
            let fields = format!("addresses = {text:?}\nrights = []");
            toml::from_str::<Allow>(&fields).map(|allow| allow.addresses.to_string()).map_err(|e| e.to_string())
        };
        assert_eq!(read("::ffff:127.0.0.1").unwrap(), "127.0.0.1/32");
        assert_eq!(read("::ffff:10.1.0.0/112").unwrap(), "10.1.0.0/16");
        assert_eq!(read("::/0").unwrap(), "::/0");
        assert_eq!(read("fd00::/8").unwrap(), "fd00::/8");
        assert!(read("::/64").unwrap_err().contains("two ranges"));
    }

    #[test]
    fn the_narrowest_range_counts_in_whatever_order() {
        use Right::{Administer, Append, Query};
        let mut ranges = vec![
            allow("10.0.0.0/8", &[Query]),
            allow("10.1.0.0/16", &[Append, Query]),
            allow("10.1.2.3/32", &[]),
            allow("fd00::/8", &[Administer]),
        ];
        for _ in 0..2 {
            let access = Access { allow: ranges.clone() };
            let rights = |address: &str| Vec::from(access.rights(Some(address.parse().unwrap())));
            assert_eq!(rights("10.2.0.1"), [Query]);
            assert_eq!(rights("10.1.9.9"), [Append, Query]);
            assert_eq!(rights("10.1.2.3"), []);
            assert_eq!(rights("::ffff:10.2.0.1"), [Query], "an address of version 4 in the clothes of version 6");
            assert_eq!(rights("fd00::1"), [Administer]);
            assert_eq!(rights("192.168.1.1"), []);
            assert_eq!((rights("127.0.0.1"), rights("::1")), (Right::ALL.to_vec(), Right::ALL.to_vec()));
            assert_eq!(access.rights(None), Rights::ALL);
            ranges.reverse();
        }
        let loopback = Access { allow: vec![allow("127.0.0.0/8", &[Query])] };
        assert_eq!(Vec::from(loopback.rights(Some([127, 0, 0, 1].into()))), [Query]);
    }
}
