//! POSIX ACLs: from the form in which the kernel hands them out as extended attributes to the text
//! that archives have.

/// The attribute with the ACL of an inode.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute with the ACL that new files in a directory get.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

const VERSION: u32 = 2;
const HEAD_BYTES: usize = 4;
const ENTRY_BYTES: usize = 8;

/// The ACL as text, `user::rw-,user:1000:r--,...`, with numbers for users and groups. `None` for
/// what is no ACL.
pub fn text(value: &[u8]) -> Option<String> {
    let (head, entries) = value.split_at_checked(HEAD_BYTES)?;
    if u32::from_le_bytes(head.try_into().ok()?) != VERSION || entries.len() % ENTRY_BYTES != 0 {
        return None;
    }
    let texts: Option<Vec<String>> = entries.chunks_exact(ENTRY_BYTES).map(entry).collect();
    texts.map(|texts| texts.join(","))
}

/// What the ACL lets the owning group do, as three bits; nothing for what is no ACL.
pub fn group_rights(value: &[u8]) -> u32 {
    let entries = value.get(HEAD_BYTES..).unwrap_or_default().chunks_exact(ENTRY_BYTES);
    let mut groups = entries.filter(|entry| entry[..2] == [0x04, 0]);
    groups.next().map_or(0, |entry| u32::from(entry[2] & 0o7))
}

fn entry(bytes: &[u8]) -> Option<String> {
    let tag = u16::from_le_bytes([bytes[0], bytes[1]]);
    let rights = u16::from_le_bytes([bytes[2], bytes[3]]);
    let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    let who = match tag {
        0x01 => "user:".into(),
        0x02 => format!("user:{id}"),
        0x04 => "group:".into(),
        0x08 => format!("group:{id}"),
        0x10 => "mask:".into(),
        0x20 => "other:".into(),
        _ => return None,
    };
    let letter = |bit, letter| if rights & bit != 0 { letter } else { '-' };
    Some(format!("{who}:{}{}{}", letter(4, 'r'), letter(2, 'w'), letter(1, 'x')))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ACL with these entries: tag, rights, user or group.
    fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let bytes = entries.iter().flat_map(|(tag, rights, id)| {
            [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat()
        });
        VERSION.to_le_bytes().into_iter().chain(bytes).collect()
    }

    #[test]
    fn acls_become_text() {
        let none = u32::MAX;
        let whole =
            acl(&[(1, 6, none), (2, 4, 1000), (4, 5, none), (8, 7, 77), (16, 7, none), (32, 0, none)]);
        let wanted = "user::rw-,user:1000:r--,group::r-x,group:77:rwx,mask::rwx,other::---";
        assert_eq!(text(&whole).as_deref(), Some(wanted));
        assert_eq!(text(&whole[..whole.len() - 1]), None);
        assert_eq!(text(b"\x01\0\0\0"), None);
        assert_eq!(text(&acl(&[(3, 0, 0)])), None);
        assert_eq!(text(b""), None);
        assert_eq!((group_rights(&whole), group_rights(b"")), (5, 0));
    }
}
