"""Online fittings of the service: start, show, stop, and go on after a change of leaders."""

from distributor.api import FittingAsked, FittingShown
from distributor.control.fitting_run import Fitter
from distributor.control.service import Distributor
from distributor.errors import Conflict, NotFound
from distributor.store import FittingRow
from distributor.store.statements import put_fitting


async def start(service: Distributor, name: str, asked: FittingAsked) -> FittingShown:
    """Raises NotFound, Conflict, StoreError."""
    async with service.changing:
        topic = service.topic(name)
        for other in service.fitters:
            if other == name:
                raise Conflict(
                    f"topic {name} is being fitted: srtm placement explain {name} shows its "
                    f"rounds, srtm placement fit {name} --stop ends it"
                )
            raise Conflict(
                f"topic {other} is being fitted: one at a time, as brokers are measured with all "
                "that they bear"
            )
        fitter = Fitter(service, name, asked)
        fitting = fitter.prepare()
        shown = fitter.shown()
        await service.commit([put_fitting(FittingRow(name, shown.model_dump_json()))])
        topic.fitting = shown
        service.state.stir(name)
        fitter.start(fitting)
    return shown


def show(service: Distributor, name: str) -> FittingShown:
    """The one that goes on, or the last. Raises NotFound."""
    fitting = service.topic(name).fitting
    if fitting is None:
        raise NotFound(f"topic {name} was never fitted; srtm placement fit {name} does it")
    return fitting


async def stop(service: Distributor, name: str) -> FittingShown:
    """Raises NotFound, Conflict where none goes on, StoreError."""
    async with service.changing:
        fitter = service.fitters.get(name)
        if fitter is None:
            service.topic(name)
            raise Conflict(f"topic {name} is not being fitted")
        await fitter.stop()
        return show(service, name)


def resume(service: Distributor) -> None:
    """Begin the fittings again that went on when the last leader ended, near where they were: what
    their rounds have taught is kept."""
    for name, topic in service.state.topics.items():
        if topic.fitting is not None and topic.is_fitted:
            Fitter(service, name, topic.fitting.asked).start(None)


def cancel(service: Distributor) -> None:
    """This distributor leads no more."""
    for fitter in list(service.fitters.values()):
        fitter.cancel()
