//! The person's terminal as input: lines, with echo only while something is asked. The settings found are put back
//! when the value is dropped, which happens on every way out, a panic included. Signals arrive as events of the
//! runtime, so they take the same way out.

use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::termios::{LocalModes, OptionalActions, QueueSelector, SpecialCodeIndex, Termios};
use tokio::io::unix::AsyncFd;

/// The kernel hands over at most this much of one line.
const LINE_MAX: usize = 4096;

/// Ctrl-D, as a key.
const END_OF_INPUT: u8 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Echo {
    On,
    Off,
}

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Typed {
    Line(String),
    /// Ctrl-D at the start of a line.
    End,
}

/// The terminal at stdin, taken over until dropped.
#[derive(Debug)]
pub(crate) struct Terminal {
    fd: AsyncFd<OwnedFd>,
    found: Termios,
    echo: Echo,
    /// Whether keys arrive as they are typed, unseen, and not as lines.
    keys: bool,
    /// The part of a line that was handed over before its end was typed.
    partial: Vec<u8>,
}

impl Terminal {
    /// Takes the terminal at stdin, with echo off. `None` if stdin is none, or belongs to another job at the moment.
    pub(crate) fn open() -> Option<Self> {
        let stdin = io::stdin();
        if !stdin.is_terminal() || rustix::termios::tcgetpgrp(&stdin).ok()? != rustix::process::getpgrp() {
            return None;
        }
        // Opened anew: O_NONBLOCK on stdin itself would be shared with the shell that started us.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = rustix::fs::open("/proc/self/fd/0", flags, Mode::empty()).ok()?;
        let found = rustix::termios::tcgetattr(&fd).ok()?;
        #[expect(
            deprecated,
            reason = "its replacement is unsafe for types that may change their descriptor; an OwnedFd \
            never does, and unsafe code is denied here"
        )]
        let fd = AsyncFd::new(fd).ok()?;
        let mut terminal = Self { fd, found, echo: Echo::Off, keys: false, partial: Vec::new() };
        terminal.set_echo(Echo::Off);
        Some(terminal)
    }

    /// Whether what is typed shows. Lines are still edited and signals still made by the terminal itself.
    pub(crate) fn set_echo(&mut self, echo: Echo) {
        self.echo = echo;
        self.keys = false;
        let mut settings = self.found.clone();
        settings.local_modes |= LocalModes::ICANON | LocalModes::ISIG;
        match echo {
            Echo::On => settings.local_modes |= LocalModes::ECHO | LocalModes::ECHOE,
            Echo::Off => settings.local_modes -= LocalModes::ECHO,
        }
        self.set(&settings);
    }

    /// Applies the settings once more: a shell puts its own back while a job is stopped.
    pub(crate) fn reapply(&mut self) {
        if self.keys { self.take_keys() } else { self.set_echo(self.echo) }
    }

    /// From now on keys arrive one by one, unseen; Ctrl-C and Ctrl-Z stay the terminal's. Until [`Terminal::set_echo`].
    pub(crate) fn take_keys(&mut self) {
        self.keys = true;
        self.partial.clear();
        let mut settings = self.found.clone();
        settings.local_modes |= LocalModes::ISIG;
        settings.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        settings.special_codes[SpecialCodeIndex::VMIN] = 1;
        settings.special_codes[SpecialCodeIndex::VTIME] = 0;
        self.set(&settings);
    }

    /// Waits for the key that leaves: `q` or Ctrl-D, typed alone. What comes in one piece with more was pasted, or is
    /// another key's sequence. Cancel-safe.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) async fn leave_key(&mut self) -> io::Result<()> {
        loop {
            let mut buffer = [0; LINE_MAX];
            let read = self.read_some(&mut buffer).await?;
            if matches!(buffer.get(..read), Some([] | [b'q' | b'Q' | END_OF_INPUT])) {
                return Ok(());
            }
        }
    }

    async fn read_some(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut ready = self.fd.readable().await?;
            if let Ok(read) = ready.try_io(|fd| Ok(rustix::io::read(fd.as_fd(), &mut *buffer)?)) {
                return read;
            }
        }
    }

    /// Throws away everything typed so far.
    pub(crate) fn discard_input(&mut self) {
        self.partial.clear();
        // A terminal that is gone has nothing typed in it.
        let _ = rustix::termios::tcflush(self.fd.as_fd(), QueueSelector::IFlush);
    }

    /// Hands the terminal to another program, until [`Terminal::reapply`].
    pub(crate) fn lend(&mut self) {
        let found = self.found.clone();
        self.set(&found);
    }

    fn set(&self, settings: &Termios) {
        // Fails when the terminal is gone, and then there is nobody to see it.
        let _ = rustix::termios::tcsetattr(self.fd.as_fd(), OptionalActions::Now, settings);
    }

    /// The next line. Cancel-safe.
    ///
    /// # Errors
    /// The terminal is gone.
    pub(crate) async fn read(&mut self) -> io::Result<Typed> {
        loop {
            let mut buffer = [0; LINE_MAX];
            let read = self.read_some(&mut buffer).await?;
            let bytes = buffer.get(..read).unwrap_or_default();
            if bytes.is_empty() {
                self.partial.clear();
                return Ok(Typed::End);
            }
            self.partial.extend_from_slice(bytes);
            if self.partial.ends_with(b"\n") {
                let line = String::from_utf8_lossy(&self.partial).trim_end_matches(['\n', '\r']).to_owned();
                self.partial.clear();
                return Ok(Typed::Line(line));
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let found = self.found.clone();
        self.set(&found);
    }
}

/// Columns of the terminal at `fd`; 80 where that cannot be known.
pub(crate) fn columns(fd: impl AsFd) -> usize {
    rustix::termios::tcgetwinsize(fd)
        .ok()
        .map(|size| usize::from(size.ws_col))
        .filter(|columns| *columns > 0)
        .unwrap_or(80)
}
