//! A terminal in raw mode on its alternate screen.

use std::io;
use std::time::Duration;

use ratatui::{
    DefaultTerminal,
    crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
    style::{Color, Modifier, Style},
    text::{Line, Span},
};
use tokio::sync::mpsc;

use crate::layout::{Row, Tone};

/// How often keys are looked for: also how long the thread that reads them lives on at most.
const KEYS: Duration = Duration::from_millis(100);

/// A key that a user presses, or a change of the terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Escape,
    /// Backspace.
    Backspace,
    /// The arrow up.
    Up,
    /// The arrow down.
    Down,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// To the beginning.
    Home,
    /// To the end.
    End,
    /// Ctrl-C, or the end of the terminal.
    Interrupt,
    /// The terminal has another size: everything is to be drawn anew.
    Resized,
}

/// The terminal. It is restored on drop; ratatui's panic hook does the same for panics, before their message is printed.
pub struct Screen {
    /// Draws.
    pub terminal: DefaultTerminal,
    keys: mpsc::Receiver<Key>,
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error cannot be handled here.
        let _ = ratatui::try_restore();
    }
}

impl Screen {
    /// Takes the terminal.
    ///
    /// # Errors
    /// When it refuses raw mode.
    pub fn open() -> io::Result<Self> {
        let terminal = ratatui::try_init()?;
        let (sender, keys) = mpsc::channel(16);
        // On a thread of its own, since reading the terminal blocks.
        std::thread::spawn(move || read_keys(&sender));
        Ok(Screen { terminal, keys })
    }

    /// The next key.
    pub async fn key(&mut self) -> Key {
        self.keys.recv().await.unwrap_or(Key::Interrupt)
    }

    /// Its columns and lines.
    pub fn size(&self) -> (usize, usize) {
        self.terminal.size().map_or((80, 24), |size| (size.width.into(), size.height.into()))
    }
}

fn read_keys(keys: &mpsc::Sender<Key>) {
    while !keys.is_closed() {
        let key = match event::poll(KEYS).and_then(|ready| ready.then(event::read).transpose()) {
            Ok(Some(Event::Key(key))) if key.kind == KeyEventKind::Press => key_of(key),
            Ok(Some(Event::Resize(..))) => Some(Key::Resized),
            Ok(_) => None,
            Err(_) => Some(Key::Interrupt),
        };
        if key.is_some_and(|key| keys.blocking_send(key).is_err()) {
            return;
        }
    }
}

fn key_of(key: KeyEvent) -> Option<Key> {
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return (key.code == KeyCode::Char('c')).then_some(Key::Interrupt);
    }
    Some(match key.code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

/// A row with the colours of its tones, if they are wanted.
pub fn line(row: &Row, colour: bool) -> Line<'static> {
    let style = |tone: Tone| match tone {
        Tone::Heading => Style::new().add_modifier(Modifier::BOLD),
        _ if !colour => Style::new(),
        Tone::Plain => Style::new(),
        Tone::Good => Style::new().fg(Color::Green),
        Tone::Waiting => Style::new().fg(Color::Yellow),
        Tone::Bad => Style::new().fg(Color::Red),
    };
    Line::from(row.iter().map(|(text, tone)| Span::styled(text.clone(), style(*tone))).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctrl_c_interrupts_and_other_keys_with_control_are_no_characters() {
        let key = |code, modifiers| key_of(KeyEvent::new(code, modifiers));
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::CONTROL), Some(Key::Interrupt));
        assert_eq!(key(KeyCode::Char('q'), KeyModifiers::CONTROL), None);
        assert_eq!(key(KeyCode::Char('c'), KeyModifiers::NONE), Some(Key::Char('c')));
        assert_eq!(key(KeyCode::F(1), KeyModifiers::NONE), None);
    }

    #[test]
    fn colours_can_be_left_out_and_headings_stay_bold() {
        let row = vec![("READY".to_owned(), Tone::Heading), ("stuck".to_owned(), Tone::Bad)];
        let styles = |colour| line(&row, colour).spans.iter().map(|span| span.style).collect::<Vec<_>>();
        assert_eq!(styles(false), [Style::new().add_modifier(Modifier::BOLD), Style::new()]);
        assert_eq!(styles(true)[1], Style::new().fg(Color::Red));
    }
}
