//! Numbers and errors as text for a person.

use std::io;

/// The system's text for an error, without "(os error N)", beginning in lower case.
pub fn cause(error: &io::Error) -> String {
    let full = error.to_string();
    let short = full.split(" (os error").next().unwrap_or_default();
    let mut chars = short.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

/// A latency in microseconds as text with three digits: `830 ns`, `12.4 us`, `1.90 ms`, `12.0 s`.
pub fn latency(us: f64) -> String {
    // A value that would be rounded to 1000 belongs to the next unit.
    let (value, unit) = match us {
        us if us < 0.9995 => return format!("{:.0} ns", us * 1e3),
        us if us < 999.5 => (us, "us"),
        us if us < 999_500.0 => (us / 1e3, "ms"),
        us => (us / 1e6, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// Three digits of a positive number: `0.12`, `1.90`, `12.4`, `830`.
pub fn digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// The name of an errno, as in the manual: `ENOSPC`. A number whose name is not known stays a
/// number.
pub fn errno(error: &io::Error) -> String {
    let Some(code) = error.raw_os_error() else { return format!("{:?}", error.kind()) };
    let named = NAMES.iter().find(|(number, _)| *number == code);
    named.map_or_else(|| format!("errno {code}"), |(_, name)| (*name).to_string())
}

macro_rules! names {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

const NAMES: &[(i32, &str)] = names! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG EBADF EAGAIN ENOMEM EACCES EFAULT EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR
    EINVAL ENFILE EMFILE ETXTBSY EFBIG ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS
    ENOTEMPTY ELOOP ENODATA ETIME EOVERFLOW EPROTO EBADMSG EOPNOTSUPP ENOTCONN ECONNRESET ECONNREFUSED ECONNABORTED
    ETIMEDOUT EHOSTDOWN EHOSTUNREACH ENETUNREACH ESTALE EDQUOT ECANCELED EREMOTEIO ESHUTDOWN ENOMEDIUM EKEYEXPIRED
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits() {
        for (us, text) in [
            (0.83, "830 ns"),
            (1.0, "1.00 us"),
            (12.44, "12.4 us"),
            (999.6, "1.00 ms"),
            (1900.0, "1.90 ms"),
            (999_600.0, "1.00 s"),
            (150_000_000.0, "150 s"),
        ] {
            assert_eq!(latency(us), text);
        }
    }

    #[test]
    fn errors_have_their_names() {
        let error = io::Error::from_raw_os_error;
        assert_eq!(errno(&error(libc::ENOSPC)), "ENOSPC");
        assert_eq!(errno(&error(libc::EDQUOT)), "EDQUOT");
        assert_eq!(errno(&error(9999)), "errno 9999");
        assert_eq!(cause(&error(libc::ENOSPC)), "no space left on device");
    }
}
