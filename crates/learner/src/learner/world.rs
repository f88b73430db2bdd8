//! Where actions lead: the model of the transition that a critic of action values learns beside its values.

use super::{Event, Learner};
use crate::window::Window;
use crate::world::{Learned, Live, LiveFacts};

impl Learner {
    /// What it has learned of where actions lead, with the last rows; none before a refit has chosen the kernels, and where
    /// [`Settings::world`](crate::Settings::world) is not set.
    pub fn transitions(&self) -> Option<Learned> {
        let window = self.action_rows.as_ref()?.window()?;
        self.world.as_ref()?.handed_out(window, &self.settings)
    }

    /// The model of the transition, if there is one.
    pub fn world(&self) -> Option<LiveFacts<'_>> {
        self.world.as_ref().map(|world| world.facts(&self.settings))
    }

    /// Learn where the rows of `window` that have come led, after `events`.
    pub(super) fn learn_transitions(&mut self, window: &Window, events: &[Event]) {
        let Some(world) = &mut self.world else { return };
        for event in events {
            // Of another world are the rows before a change, and those behind one that is over.
            match event {
                Event::Swapped { from, .. } if *from <= world.first() => {}
                Event::Swapped { from, .. } => world.restart(window, *from..u64::MAX, &self.settings),
                Event::Returned { until, .. } => world.restart(window, 0..*until, &self.settings),
                _ => {}
            }
        }
        world.learn(window, &self.settings);
    }

    /// Take what a refit has made; without, the present one stays.
    pub(super) fn take_world(&mut self, world: Option<Box<Live>>) {
        if self.settings.world && world.is_some() {
            self.world = world;
        }
    }

    /// Whether it fits the rows, which a file may contradict.
    pub(super) fn is_world_consistent(&self) -> bool {
        let window = self.action_rows.as_ref().and_then(|rows| rows.window());
        let width = self.settings.action_width();
        let fits = |world: &Live| window.is_some_and(|window| world.is_consistent(window.dim(), width));
        self.world.as_ref().is_none_or(|world| fits(world))
    }
}
