//! Where actions lead: the model of the transition that a critic of action values learns beside its values.

use super::{Event, Learner};
use crate::window::Window;
use crate::world::{Learned, Live, LiveFacts};

impl Learner {
    /// What it has learned of where actions lead, with the last rows; none before a refit has chosen the kernels, and where
    /// [`Settings::world`](crate::Settings::world) is not set.
    pub fn transitions(&self) -> Option<Learned> {
        let rows = self.action_rows.as_ref()?;
        rows.world.as_ref()?.handed_out(rows.window()?, &self.settings)
    }

    /// The model of the transition, if there is one.
    pub fn world(&self) -> Option<LiveFacts<'_>> {
        self.action_rows.as_ref()?.world.as_ref().map(|world| world.facts(&self.settings))
    }

    /// Learn where the rows of `window` that have come led, after `events`.
    pub(super) fn learn_transitions(&mut self, window: &Window, events: &[Event]) {
        let Some(world) = self.action_rows.as_mut().and_then(|rows| rows.world.as_mut()) else { return };
        for event in events {
            // Of another world are the rows before a change. Where one is over, it is not known which rows before it were of this one.
            match event {
                Event::Swapped { from, .. } if *from <= world.first() => {}
                Event::Swapped { from, .. } => world.restart(*from),
                Event::Returned { at, .. } => world.restart(*at),
                _ => {}
            }
        }
        world.learn(window, &self.settings);
    }

    /// Take what a refit has made; without, the present one stays.
    pub(super) fn take_world(&mut self, world: Option<Box<Live>>) {
        if let (Some(rows), true) = (&mut self.action_rows, self.settings.world && world.is_some()) {
            rows.world = world;
        }
    }

    /// Forget it where it is not wanted.
    pub(super) fn let_world_go(&mut self) {
        if let Some(rows) = self.action_rows.as_mut().filter(|_| !self.settings.world) {
            rows.world = None;
        }
    }
}
