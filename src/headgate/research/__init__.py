"""One question to several search APIs at once, and one merged answer.

    research = DeepResearch([TavilyProvider(key), SemanticScholarProvider(), CrossrefProvider()])
    found = await research.gather("adaptive rate limiting", max_results=20)
    for finding in found.findings:
        print(finding.title, finding.url, dict(finding.places))

deep_research   queries the providers at once, handles their failures, and reports how each has ended
rank_fusion     findings: which results are the same work, and in which order works are ranked
"""

from .deep_research import DeepResearch, ProviderReport, ResearchResult
from .rank_fusion import Finding, merge

__all__ = ["DeepResearch", "Finding", "ProviderReport", "ResearchResult", "merge"]
